// Package sshtest starts OpenSSH servers for tests.
package sshtest

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/delegate-io/dlite/internal/testbed"
)

// Server is an OpenSSH server on loopback, which permits one key to the present user.
type Server struct {
	// Address is the host and the port.
	Address string
	User    string
	// Key is the private key of the user, in PEM.
	Key string
	// KnownHosts is the line of the server in a known_hosts file.
	KnownHosts string
	// Stop ends the server. The end of the test calls it too.
	Stop func()

	mu       sync.Mutex
	accepted int             // guarded by mu
	log      strings.Builder // guarded by mu
}

// NewKey returns a public key, and its private key in PEM.
func NewKey(t *testing.T) (ssh.PublicKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return key, string(pem.EncodeToMemory(block))
}

// Start starts a server with further lines of sshd_config.
func Start(t *testing.T, settings ...string) *Server {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		program = "/usr/sbin/sshd"
		if _, err := os.Stat(program); err != nil {
			testbed.Unavailable(t, "sshd", "package openssh-server is missing")
		}
	}
	me, err := user.Current()
	require.NoError(t, err)
	if me.Uid == "0" {
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // it insists on this directory
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	host, hostText := NewKey(t)
	own, ownText := NewKey(t)
	config := write("config", strings.Join(append([]string{
		"ListenAddress 127.0.0.1", "Port " + port, "HostKey " + write("host", hostText), "AuthorizedKeysFile " + write("keys", string(ssh.MarshalAuthorizedKey(own))),
		"StrictModes no", "UsePAM no", "PermitRootLogin yes", "PasswordAuthentication no", "PidFile none", "AcceptEnv GIT_PROTOCOL", "MaxStartups 50", "LogLevel VERBOSE",
	}, settings...), "\n"))
	s := &Server{Address: address, User: me.Username, Key: ownText, KnownHosts: knownhosts.Line([]string{knownhosts.Normalize(address)}, host)}
	s.start(t, exec.Command(program, "-D", "-e", "-f", config)) //nolint:noctx // Stop ends it
	return s
}

func (s *Server) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ready := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		isReady := sync.OnceFunc(func() { close(ready) })
		defer isReady()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.note(lines.Text())
			if strings.Contains(lines.Text(), "Server listening") {
				isReady()
			}
		}
	})
	s.Stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		reading.Wait()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	t.Cleanup(s.Stop)
	<-ready
}

func (s *Server) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(&s.log, line)
	if strings.Contains(line, "Accepted publickey") {
		s.accepted++
	}
}

// Accepted returns the number of connections with the right key.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}
