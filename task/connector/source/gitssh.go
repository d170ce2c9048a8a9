package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/delegate-io/dlite/internal/source"
)

// listSSH lists refs over SSH. Each poll is a session; sessions for one user of a server share a connection.
func (s *Sources) listSSH(ctx context.Context, cfg *source.GitConfig, address *url.URL, prefixes []string, keep func(string) bool) (map[string]string, error) {
	for {
		conn, err := s.ssh.get(ctx, sshKey(cfg, address), func(ctx context.Context) (*ssh.Client, error) { return s.dialSSH(ctx, cfg, address) })
		if err != nil {
			return nil, fmt.Errorf("connecting to the SSH server %s: %w", address.Host, err)
		}
		s.requests.Add(1)
		refs, err := lsRefsSSH(ctx, conn.client, address.Path, prefixes, keep)
		var lost *lostError
		isLost := errors.As(err, &lost)
		fresh := s.ssh.put(conn, isLost || ctx.Err() != nil)
		if !isLost || fresh || ctx.Err() != nil {
			return refs, err
		}
		// The server has closed the connection since its last session: the next one may be better, and a new one is.
	}
}

// lostError means that the connection has ended.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// lsRefsSSH lists refs in a session.
func lsRefsSSH(ctx context.Context, client *ssh.Client, path string, prefixes []string, keep func(string) bool) (map[string]string, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, &lostError{fmt.Errorf("opening a session: %w", err)}
	}
	defer func() { _ = session.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	_ = session.Setenv("GIT_PROTOCOL", "version=2") // servers may refuse it, and answer in version 0
	in, err := session.StdinPipe()
	if err != nil {
		return nil, &lostError{err}
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, &lostError{err}
	}
	problem := &head{most: 512}
	session.Stderr = problem
	if err := session.Start("git-upload-pack " + quoted(path)); err != nil {
		return nil, &lostError{fmt.Errorf("starting git-upload-pack: %w", err)}
	}
	p := newPackets(out)
	a, err := readAdvertisement(p, keep)
	if err != nil {
		return nil, sessionError(ctx, session, err, problem)
	}
	refs := a.refs
	if a.version2 {
		if _, err := in.Write(lsRefs(a.format, prefixes)); err != nil {
			return nil, &lostError{err}
		}
		if refs, err = readRefs(p, keep); err != nil {
			return nil, sessionError(ctx, session, err, problem)
		}
	}
	_, _ = io.WriteString(in, flushPacket) // ends the conversation
	_ = in.Close()
	return refs, nil
}

// sessionError explains the failure of a session with the text that the server wrote.
func sessionError(ctx context.Context, session *ssh.Session, err error, problem *head) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_ = session.Close()
	_ = session.Wait() // the end of its output
	if text := strings.TrimSpace(problem.String()); text != "" {
		return fmt.Errorf("the SSH server refuses the repository: %s", printable(text))
	}
	return err
}

// quoted quotes a path for the shell of the server. A path below the home directory begins with /~/.
func quoted(path string) string {
	if rest, home := strings.CutPrefix(path, "/~/"); home {
		path = rest
	}
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}

// dialSSH connects and authenticates.
func (s *Sources) dialSSH(ctx context.Context, cfg *source.GitConfig, address *url.URL) (*ssh.Client, error) {
	auth, err := sshAuth(cfg.Auth)
	if err != nil {
		return nil, err
	}
	check, err := s.hostKeys(cfg)
	if err != nil {
		return nil, err
	}
	host := sshHost(address)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, chans, requests, err := ssh.NewClientConn(conn, host, &ssh.ClientConfig{
		User: sshUser(cfg, address), Auth: auth, HostKeyCallback: check, ClientVersion: "SSH-2.0-dlite",
	})
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(noDeadline)
	return ssh.NewClient(c, chans, requests), nil
}

func sshHost(address *url.URL) string {
	port := address.Port()
	if port == "" {
		port = "22"
	}
	return net.JoinHostPort(address.Hostname(), port)
}

func sshUser(cfg *source.GitConfig, address *url.URL) string {
	switch {
	case address.User.Username() != "":
		return address.User.Username()
	case cfg.Auth != nil && cfg.Auth.Username != "":
		return cfg.Auth.Username
	}
	return "git"
}

func sshAuth(a *source.Auth) ([]ssh.AuthMethod, error) {
	if a == nil || a.Key == "" && a.Password == "" {
		return nil, errors.New("a source over SSH needs the secret key of its connector, a private key in PEM")
	}
	if a.Key == "" {
		return []ssh.AuthMethod{ssh.Password(a.Password)}, nil
	}
	key := []byte(strings.TrimSpace(a.Key) + "\n")
	signer, err := ssh.ParsePrivateKey(key)
	if _, locked := err.(*ssh.PassphraseMissingError); locked && a.Passphrase != "" { //nolint:errorlint // the package returns it as such
		signer, err = ssh.ParsePrivateKeyWithPassphrase(key, []byte(a.Passphrase))
	}
	if err != nil {
		return nil, errors.New("the secret key is not a private key in PEM without a passphrase") // err might quote it
	}
	return []ssh.AuthMethod{ssh.PublicKeys(signer)}, nil
}

// hostKeys returns the check of the keys of servers.
func (s *Sources) hostKeys(cfg *source.GitConfig) (ssh.HostKeyCallback, error) {
	file := s.knownHosts
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		file = filepath.Join(home, ".ssh", "known_hosts")
	}
	if cfg.HostKeys != "" {
		f, err := os.CreateTemp("", "dlite-known-hosts-") // the package reads files only
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.Remove(f.Name()) }()
		_, err = f.WriteString(cfg.HostKeys + "\n")
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		file = f.Name()
	}
	check, err := knownhosts.New(file)
	if err != nil && cfg.HostKeys != "" {
		return nil, errors.New("host_keys is not text in the form of known_hosts: use the lines that ssh-keyscan prints")
	}
	if err != nil {
		check = func(string, net.Addr, ssh.PublicKey) error { return &knownhosts.KeyError{} }
	}
	return func(host string, addr net.Addr, key ssh.PublicKey) error {
		err := check(host, addr, key)
		var wrong *knownhosts.KeyError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &wrong) && len(wrong.Want) > 0:
			return fmt.Errorf("the key %s of the server is not its known one: another server answers, or its key has changed; if so, set host_keys", ssh.FingerprintSHA256(key))
		case errors.As(err, &wrong):
			return fmt.Errorf("the key %s of the server is not known: set host_keys to the line that ssh-keyscan prints, after a check", ssh.FingerprintSHA256(key))
		}
		return err
	}, nil
}

// head keeps the first bytes that are written.
type head struct {
	text []byte
	most int
}

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), h.most-len(h.text))]...)
	return len(p), nil
}

func (h *head) String() string { return string(h.text) }
