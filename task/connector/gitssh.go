package connector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// remote is an address of Git over SSH.
type remote struct{ user, host, port, path string }

func parseRemote(p *probe) (remote, *failure) {
	r := remote{port: "22"}
	if m := scpForm.FindStringSubmatch(p.c.Address); m != nil && !strings.Contains(p.c.Address, "://") {
		r.user, r.host, r.path = m[1], strings.Trim(m[2], "[]"), m[3]
	} else {
		u, err := url.Parse(p.c.Address)
		if err != nil || u.Hostname() == "" {
			return r, fail(stepAddress, "write it as ssh://git@HOST/PATH or git@HOST:PATH", "the address is not a URL")
		}
		if _, has := u.User.Password(); has {
			return r, fail(stepAddress, "put the password into the secret password", "the address has a password")
		}
		r.user, r.host, r.port, r.path = u.User.Username(), u.Hostname(), cmp.Or(u.Port(), "22"), u.Path
	}
	if repo := p.option(optionRepository); repo != "" {
		r.path = strings.TrimRight(r.path, "/") + "/" + repo
	}
	r.user = cmp.Or(r.user, p.secret(secretUsername), p.option(optionUsername), "git")
	if strings.Trim(r.path, "/") == "" {
		return r, fail(stepAddress, "add it to the address, or set the option repository", "the address names no repository")
	}
	return r, nil
}

// testGitSSH lists the refs of a repository over SSH.
func testGitSSH(ctx context.Context, p *probe) *failure {
	r, f := parseRemote(p)
	if f != nil {
		return f
	}
	auth, credential, f := sshLogin(p)
	if f != nil {
		return f
	}
	config, f := p.sshConfig(r)
	if f != nil {
		return f
	}
	config.User, config.Auth = r.user, auth
	address := net.JoinHostPort(r.host, r.port)
	conn, err := p.dialer.dial(ctx, "tcp", address, false)
	if err != nil {
		return p.explain(ctx, r.host, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	p.enter(stepHostKey, r.host)
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		return p.explainSSH(ctx, r, credential, err)
	}
	client := ssh.NewClient(c, channels, requests)
	defer func() { _ = client.Close() }()
	p.report.ok(stepAuthentication, "the server accepts %s for the user %s", credential, r.user)
	return p.listOverSSH(ctx, client, r, credential)
}

// sshLogin returns the ways to authenticate.
func sshLogin(p *probe) ([]ssh.AuthMethod, string, *failure) {
	key, password := p.secret(secretKey), cmp.Or(p.secret(secretPassword), p.secret(secretToken))
	switch {
	case key != "":
		var signer ssh.Signer
		var err error
		if password != "" {
			signer, err = ssh.ParsePrivateKeyWithPassphrase([]byte(key), []byte(password))
			if err != nil { // the key may have no passphrase
				signer, err = ssh.ParsePrivateKey([]byte(key))
			}
		} else {
			signer, err = ssh.ParsePrivateKey([]byte(key))
		}
		var missing *ssh.PassphraseMissingError
		switch {
		case errors.As(err, &missing):
			return nil, "", fail("secrets", "put the passphrase into the secret password, or use a key without one", "the secret key has a passphrase")
		case err != nil: // the error may quote the key
			return nil, "", fail("secrets", "give the whole file with all its line breaks, from -----BEGIN to -----END", "the secret key is not a private key for SSH")
		}
		return []ssh.AuthMethod{ssh.PublicKeys(signer)}, "the key " + ssh.FingerprintSHA256(signer.PublicKey()), nil
	case password != "":
		return []ssh.AuthMethod{ssh.Password(password)}, "the password", nil
	}
	return nil, "", fail(stepAddress, "set the secret key to a private key in PEM", "a connector over SSH needs a key")
}

// hostKeyError says that the key of the server is not the known one.
type hostKeyError struct{ *failure }

// sshConfig returns a configuration that checks the key of the server against the option known_hosts.
func (p *probe) sshConfig(r remote) (*ssh.ClientConfig, *failure) {
	config := &ssh.ClientConfig{ClientVersion: "SSH-2.0-dlite-connector-test"}
	address := net.JoinHostPort(r.host, r.port)
	known := p.option(optionKnownHosts)
	if known == "" {
		config.HostKeyCallback = func(_ string, _ net.Addr, key ssh.PublicKey) error {
			return hostKeyError{fail(stepHostKey, "compare the fingerprint with that of the server's operator; if it is the same, set the option known_hosts to: "+
				knownhosts.Line([]string{knownhosts.Normalize(address)}, key), "the connector has no key of %s to compare with; the server has %s %s", r.host, key.Type(), ssh.FingerprintSHA256(key))}
		}
		return config, nil
	}
	check, f := knownHosts(known)
	if f != nil {
		return nil, f
	}
	var wanted *knownhosts.KeyError
	if errors.As(check(address, &net.TCPAddr{IP: net.IPv4zero}, noKey{}), &wanted) {
		for _, k := range wanted.Want {
			config.HostKeyAlgorithms = append(config.HostKeyAlgorithms, algorithms(k.Key.Type())...)
		}
	}
	config.HostKeyCallback = func(host string, at net.Addr, key ssh.PublicKey) error {
		err := check(host, at, key)
		var mismatch *knownhosts.KeyError
		switch {
		case err == nil:
			p.report.ok(stepHostKey, "the host key of %s is the known one (%s)", r.host, ssh.FingerprintSHA256(key))
			p.enter(stepAuthentication, r.host)
			return nil
		case errors.As(err, &mismatch) && len(mismatch.Want) == 0:
			return hostKeyError{fail(stepHostKey, "add a line for the host: "+knownhosts.Line([]string{knownhosts.Normalize(address)}, key)+", if the fingerprint is right",
				"the option known_hosts has no key of %s; the server has %s %s", r.host, key.Type(), ssh.FingerprintSHA256(key))}
		default:
			return hostKeyError{fail(stepHostKey, "ask the operator of the server if its key has changed; if not, another machine answers in its place, and no secret was sent to it",
				"the host key of %s is not the known one: the server has %s %s", r.host, key.Type(), ssh.FingerprintSHA256(key))}
		}
	}
	return config, nil
}

// algorithms returns the algorithms of signatures of a type of key.
func algorithms(typ string) []string {
	if typ == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{typ}
}

// noKey is a key that equals no other.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

// knownHosts parses the lines of a known_hosts file. The package reads files only.
func knownHosts(lines string) (ssh.HostKeyCallback, *failure) {
	file, err := os.CreateTemp("", "dlite-known-hosts-")
	if err == nil {
		defer func() { _ = os.Remove(file.Name()) }()
		_, err = io.WriteString(file, lines)
		err = errors.Join(err, file.Close())
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return nil, fail(stepAddress, "free space in the folder for temporary files of the delegate (TMPDIR)", "the disk of the delegate is full")
	case err != nil:
		return nil, fail(stepAddress, "check the folder for temporary files of the delegate (TMPDIR)", "the delegate cannot write a temporary file: %s", systemProblem(err))
	}
	check, err := knownhosts.New(file.Name())
	if err != nil {
		return nil, fail(stepAddress, "use the lines that ssh-keyscan prints", "the option known_hosts is not valid")
	}
	return check, nil
}

// explainSSH explains a failed handshake.
func (p *probe) explainSSH(ctx context.Context, r remote, credential string, err error) *failure {
	if h, ok := errors.AsType[hostKeyError](err); ok {
		return h.failure
	}
	step, _ := p.current()
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case ctx.Err() != nil || isTimeout(err):
		return slow(step, r.host)
	case errors.As(err, &negotiation):
		return fail(stepHostKey, "if the server has a new host key, add it to the option known_hosts", "%s offers no host key or cipher that the delegate accepts: %s", r.host, err)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fail(stepAuthentication, "add the public half of the key to the account or the repository on the server", "%s rejects %s for the user %s", r.host, credential, r.user)
	case step == stepHostKey:
		return fail(stepHostKey, "check that the port is that of an SSH server", "%s does not speak SSH on the port %s: %s", r.host, r.port, err)
	}
	return fail(stepAuthentication, "look into the log of the SSH server", "the SSH server of %s ends the connection: %s", r.host, err)
}

// listOverSSH runs the program of Git on the server and counts the refs that it lists.
func (p *probe) listOverSSH(ctx context.Context, client *ssh.Client, r remote, credential string) *failure {
	p.enter(stepAnswer, r.host)
	session, err := client.NewSession()
	if err != nil {
		return fail(stepPermission, "permit sessions for the user on the server", "%s permits no session: %s", r.host, err)
	}
	defer func() { _ = session.Close() }()
	program, what := "git-upload-pack", "read"
	if p.write() {
		program, what = "git-receive-pack", "write"
	}
	var problem limitedBuffer
	session.Stderr = &problem
	in, err1 := session.StdinPipe()
	out, err2 := session.StdoutPipe()
	if err := errors.Join(err1, err2, session.Start(program+" "+quoteShell(r.path))); err != nil {
		return fail(stepPermission, "permit Git commands for the user on the server", "%s does not run %s: %s", r.host, program, err)
	}
	text, err := readAdvertisement(out)
	_, _ = io.WriteString(in, "0000") // the end of a client that wants nothing
	_ = in.Close()
	if ctx.Err() != nil {
		return slow(stepAnswer, r.host)
	}
	refs, ok := countRefs(text, "")
	if err == nil && ok {
		p.report.ok(stepPermission, "%s may %s the repository %s, which has %d refs", credential, what, r.path, refs)
		return nil
	}
	_ = session.Wait()
	said := oneLine(problem.String(), maxQuote)
	if saysFull([]byte(said)) {
		return fail(stepAnswer, "free space on the server", "%s has no free space: %s", r.host, said)
	}
	if said != "" {
		said = ": " + said
	}
	return fail(stepPermission, "correct the path, or give the key access to the repository", "%s does not give the repository %s to %s%s", r.host, r.path, credential, said)
}

// readAdvertisement reads pkt-lines up to the flush.
func readAdvertisement(r io.Reader) ([]byte, error) {
	var all []byte
	for len(all) < maxAnswer {
		head := make([]byte, 4)
		if _, err := io.ReadFull(r, head); err != nil {
			return all, err
		}
		all = append(all, head...)
		parsed, err := strconv.ParseUint(string(head), 16, 16)
		if err != nil {
			return all, err
		}
		size := int(parsed)
		if size == 0 {
			return all, nil
		}
		if size < 4 {
			return all, errors.New("a line has an impossible length")
		}
		start := len(all)
		all = slices.Grow(all, size-4)[:start+size-4]
		if _, err := io.ReadFull(r, all[start:]); err != nil {
			return all[:start], err
		}
	}
	return all, nil
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// limitedBuffer keeps the beginning of a text.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := 4096 - b.Len(); room > 0 {
		_, _ = b.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
