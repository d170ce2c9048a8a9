package testbed

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
)

// The client of [OIDC], and the password of its users: ada is in the group builders, grace in operators, eve in none.
const (
	OIDCClient   = "page"
	OIDCSecret   = "not-a-real-secret"
	OIDCPassword = "not-a-real-password"
)

// OIDC starts a service for sign-ins by OpenID Connect that ends with the test, and returns its issuer. Page is the
// address of the page, with a final slash. The first call on a machine builds the service from its modules.
func OIDC(tb testing.TB, page string) string {
	tb.Helper()
	program, err := buildProgram("oidc", ".", "-s -w")
	if err != nil {
		Unavailable(tb, "oidc", "it cannot be built: %v", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program, "-page", page)
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting the service: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("the service did not start: %v: %s", err, &stderr)
	}
	return strings.TrimSpace(line)
}
