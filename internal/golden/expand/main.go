// Command expand prints scenarios with their goldens complete, also those that are differences from a base. The script
// tools/golden runs it.
package main

import (
	"fmt"
	"os"

	"golang.org/x/tools/txtar"

	"weft/internal/golden/difference"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: tools/golden FILE...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		scenario, err := difference.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "golden:", err)
			os.Exit(1)
		}
		os.Stdout.Write(txtar.Format(scenario))
	}
}
