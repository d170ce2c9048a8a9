//go:build !linux

package pagetest

import (
	"os"
	"os/exec"
)

// becomeBrowser runs a browser in place of this process.
func becomeBrowser(path string) error {
	cmd := exec.Command(path, os.Args[1:]...) //nolint:noctx // it lives as long as this process
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
