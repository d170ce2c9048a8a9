package testbed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// VaultServer is a real Vault with its storage in memory. Only the secret engines that a test
// mounts are available.
type VaultServer struct {
	// Address is the server's URL.
	Address string
	// Token is a root token.
	Token string

	stop func()
}

// Vault starts a Vault that ends with the test. The first call on a machine builds it from its
// modules. That takes minutes and, without a filled module cache, a network.
func Vault(tb testing.TB) *VaultServer {
	tb.Helper()
	program, err := buildProgram("vault", ".", "-s -w")
	if err != nil {
		Unavailable(tb, "vault", "it cannot be built: %v", err)
	}
	v := &VaultServer{Token: "root-token-of-a-test"}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program, "-root", v.Token, "-listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting Vault: %v", err)
	}
	stopped := false
	v.stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	tb.Cleanup(v.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		v.stop()
		tb.Fatalf("Vault did not start: %v: %s", err, &stderr)
	}
	v.Address = strings.TrimSpace(line)
	return v
}

// Stop kills the server, like a crash.
func (v *VaultServer) Stop() { v.stop() }

// Do sends a request with the root token and returns the answer's JSON. header alternates
// names and values. A status over 299 fails the test.
func (v *VaultServer) Do(tb testing.TB, method, path string, body any, header ...string) map[string]any {
	tb.Helper()
	status, text := v.send(tb, method, path, body, header)
	if status > 299 {
		tb.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	var answer map[string]any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			tb.Fatal(err)
		}
	}
	return answer
}

// Try sends a request with the root token and returns the answer's status.
func (v *VaultServer) Try(tb testing.TB, method, path string, body any) int {
	tb.Helper()
	status, _ := v.send(tb, method, path, body, nil)
	return status
}

// Ask sends a request that may fail with the root token. It returns the answer's JSON, or nil
// if there is none.
func (v *VaultServer) Ask(tb testing.TB, method, path string, body any) map[string]any {
	tb.Helper()
	var answer map[string]any
	if status, text := v.send(tb, method, path, body, nil); status > 299 || json.Unmarshal(text, &answer) != nil {
		return nil
	}
	return answer
}

func (v *VaultServer) send(tb testing.TB, method, path string, body any, header []string) (int, []byte) {
	tb.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		tb.Fatal(err)
	}
	req, err := http.NewRequestWithContext(tb.Context(), method, v.Address+"/v1/"+path, bytes.NewReader(b))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", v.Token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, text
}
