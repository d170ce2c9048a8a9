//go:build unix

package testbed

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// PostgresServer is a real PostgreSQL with its data in a folder of the test. It listens on a
// socket in that folder only.
type PostgresServer struct {
	// URL is the address for clients. It stays the same after a restart.
	URL string

	tb       testing.TB
	programs string
	dir      string
	account  *syscall.Credential // the server refuses to run as root
	cmd      *exec.Cmd
	output   chan struct{} // closed when its output has ended, so that all its processes have ended
}

// Postgres starts a PostgreSQL that ends with the test.
func Postgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	programs := postgresPrograms()
	if programs == "" {
		Unavailable(tb, "postgres", "there is no PostgreSQL server (package postgresql)")
	}
	p := &PostgresServer{tb: tb, programs: programs}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "pg-*")
	if err != nil {
		tb.Fatal(err)
	}
	p.dir = dir
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := p.chooseAccount(); err != nil {
		Unavailable(tb, "postgres", "no account for PostgreSQL: %v", err)
	}
	tb.Cleanup(p.Kill)
	out, err := p.command("initdb", "-D", p.data(), "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C").CombinedOutput()
	if err != nil {
		tb.Fatalf("creating the data of PostgreSQL: %v\n%s", err, out)
	}
	p.URL = "postgres:///postgres?" + url.Values{"host": {dir}, "user": {"postgres"}, "sslmode": {"disable"}}.Encode()
	p.Start(tb)
	return p
}

// postgresPrograms returns the folder with the server's programs. Debian does not put it into
// PATH.
func postgresPrograms() string {
	if program, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(program)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(slices.Max(found))
}

func (p *PostgresServer) chooseAccount() error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	p.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(p.dir, int(uid), int(gid))
}

func (p *PostgresServer) data() string { return filepath.Join(p.dir, "data") }

func (p *PostgresServer) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(p.tb.Context()), filepath.Join(p.programs, program), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account}
	return cmd
}

// Kill ends the server with SIGKILL and waits for the end of all its processes. It does
// nothing if the server was killed already.
func (p *PostgresServer) Kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		<-p.output
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// Start starts the server again after Kill, and returns when it accepts connections.
func (p *PostgresServer) Start(tb testing.TB) {
	tb.Helper()
	cmd := p.command("postgres", "-D", p.data(), "-k", p.dir, "-c", "listen_addresses=", "-c", "max_connections=200", "-c", "logging_collector=off")
	out, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p.cmd, p.output = cmd, make(chan struct{})
	ready := make(chan error, 1)
	go func() {
		defer close(p.output)
		var log strings.Builder
		told := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if told {
				continue
			}
			fmt.Fprintln(&log, lines.Text())
			if strings.Contains(lines.Text(), "ready to accept connections") {
				told = true
				ready <- nil
			}
		}
		if !told {
			ready <- fmt.Errorf("PostgreSQL ended: %s", log.String())
		}
	}()
	if err := <-ready; err != nil {
		tb.Fatal(err)
	}
}
