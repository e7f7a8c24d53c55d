package testnet_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"weft/internal/testnet"
)

// listenPort makes the program of the tests one that listens at a port in a network of its own, and prints a line.
const listenPort = "WEFT_TEST_LISTEN_PORT"

func TestMain(m *testing.M) {
	if port := os.Getenv(listenPort); port != "" {
		os.Exit(testnet.Run(func() int { return listen(port) }))
	}
	os.Exit(m.Run())
}

// listen listens at a port of each address of the network until its standard input ends. The exit code says that Run
// returns it.
func listen(port string) int {
	for _, host := range []string{"127.0.0.1", "::1", "198.51.100.1"} {
		if _, err := net.Listen("tcp", net.JoinHostPort(host, port)); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("listening")
	buffer := make([]byte, 1)
	os.Stdin.Read(buffer)
	return 7
}

// Two runs use the same port at once, and neither sees the other.
func TestRunsHaveNetworksOfTheirOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("without root there are no network namespaces")
	}
	port := fmt.Sprint(testnet.Port(t))
	var ends []func()
	for range 2 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), listenPort+"="+port)
		in, err := command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 100)
		n, err := out.Read(line)
		if said := strings.TrimSpace(string(line[:n])); said != "listening" {
			t.Errorf("a run says %q, %v", said, err)
		}
		ends = append(ends, func() {
			in.Close()
			command.Wait()
			if code := command.ProcessState.ExitCode(); code != 7 {
				t.Errorf("the exit code is %d, want that of the function", code)
			}
		})
	}
	if _, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
		t.Error("a port of a run is reached from outside of its network")
	}
	for _, end := range ends {
		end()
	}
}

func TestPortsDiffer(t *testing.T) {
	ports, err := testnet.Ports(200)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range append(ports, testnet.Port(t)) {
		if seen[port] || port < 1024 || port > 32767 {
			t.Errorf("port %d is given twice, or belongs to clients", port)
		}
		seen[port] = true
	}
}
