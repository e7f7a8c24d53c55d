package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weft/internal/testwait"
)

// A connection that leaves a machine by passthrough makes no caller an administrator, even where it reaches the control
// plane from a loopback address. Strangers reach nothing of the machine through the redirection's ports.
func TestHostilePassthrough(t *testing.T) {
	wantRoot(t)
	a := newAttack(t, "an application or a stranger uses the passthrough of a transparent proxy as somebody else")
	w := newWorld(t)
	w.apply(secured)
	router := newRouter(t)
	client := w.redirected(router, "client", "3")
	// A tunnel to the control plane from its loopback address, like one of SSH.
	forward(router.listen(t, fmt.Sprintf("%s:%d", routerAtClient, w.plane.Ports.API)), nil,
		fmt.Sprintf("127.0.0.1:%d", w.plane.Ports.API))
	secret := w.serve(client.listen(t, "127.0.0.1:18099"), "secret")
	defer secret.Close()
	w.proxyOn(client, "default", "client", transparent("client", clientAddress, ""))

	api := fmt.Sprintf("http://%s:%d", routerAtClient, w.plane.Ports.API)
	w.eventually("the API responds through the passthrough", func() error {
		body, err := client.fetch(api + "/")
		if err == nil && !strings.Contains(body, "instanceId") {
			err = fmt.Errorf("it says %s", body)
		}
		return err
	})
	for _, host := range []string{"localhost", "127.0.0.1:5681", ""} {
		for _, request := range administration {
			response, err := client.say(fmt.Sprintf("%s:%d", routerAtClient, w.plane.Ports.API),
				fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
					request.method, request.path, host))
			if err != nil || response != http.StatusUnauthorized && response != http.StatusForbidden &&
				response != http.StatusBadRequest {
				a.fellTo("%s %s as %q: %d, %v", request.method, request.path, host, response, err)
				continue
			}
			a.repelled()
		}
	}
	for _, port := range []int{15001, 15006, 18099} {
		for _, asks := range []string{
			"GET / HTTP/1.1\r\nHost: 127.0.0.1:18099\r\n\r\n",
			"GET http://127.0.0.1:18099/ HTTP/1.1\r\nHost: 127.0.0.1:18099\r\nx-envoy-original-dst-host: " +
				"127.0.0.1:18099\r\n\r\n",
			"CONNECT 127.0.0.1:18099 HTTP/1.1\r\nHost: 127.0.0.1:18099\r\n\r\n",
			"PROXY TCP4 127.0.0.1 127.0.0.1 18099 18099\r\nGET / HTTP/1.1\r\nHost: 127.0.0.1:18099\r\n\r\n",
		} {
			if status, err := router.say(fmt.Sprintf("%s:%d", clientAddress, port), asks); err == nil {
				a.fellTo("a stranger at port %d gets %d for %q", port, status, asks)
				continue
			}
			a.repelled()
		}
	}
}

// say sends bytes to an address from a machine and returns the status of the response.
func (m *machine) say(address, text string) (status int, err error) {
	c, err := m.dial(m.t.Context(), "tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.SetDeadline(testwait.Deadline())
	if _, err := c.Write([]byte(text)); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
