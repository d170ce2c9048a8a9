package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/process"
)

// git runs git for one clone, in an environment of its own: neither the
// machine's nor the user's configuration, attributes, hooks, templates,
// credential helpers and .netrc have a say, and nothing is ever asked.
type git struct {
	d       *Driver
	ledger  driver.Ledger
	program string
	dir     string // the working tree
	home    string // holds the configuration, which has no secrets
	env     []string
	name    string // of the transaction
	labels  map[string]string
}

// The variables through which the credential helper gets the credentials. They
// are in the environment of git's own processes and nowhere else.
const (
	gitUsername = "DLITE_GIT_USERNAME"
	gitPassword = "DLITE_GIT_PASSWORD"
)

// gitInherited are the variables of the delegate that git sees: how to get at
// programs, the network and ssh's agent.
var gitInherited = []string{
	"PATH", "TMPDIR", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY",
	"SSH_AUTH_SOCK", "GIT_SSH_COMMAND",
	"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "TEMP", "TMP", "ProgramFiles", "ProgramData",
}

// newGit sets git up to work in dir for a remote. home is a folder that does
// not exist yet; close removes it.
func (d *Driver) newGit(tx *transaction, dir string, from *remote, l driver.Ledger) (*git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, errors.New("git was not found in the PATH of this machine's delegate")
	}
	g := &git{
		d: d, ledger: l, program: program, dir: dir,
		home: filepath.Join(tx.Dir, "git-"+randomHex(4)),
		name: tx.Name, labels: tx.labels,
	}
	env := map[string]string{}
	for _, name := range gitInherited {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	config := filepath.Join(g.home, ".gitconfig")
	for k, v := range map[string]string{
		"HOME": g.home, "XDG_CONFIG_HOME": g.home, "USERPROFILE": g.home,
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": config,
		"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never",
		"LC_ALL": "C", // its messages are read
		// Filters are not set up: without LFS the pointers stay what they are.
		"GIT_LFS_SKIP_SMUDGE": "1",
	} {
		env[k] = v
	}
	if env["GIT_SSH_COMMAND"] == "" {
		env["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15 -oServerAliveCountMax=4"
	}
	if from.username != "" || from.password != "" {
		env[gitUsername], env[gitPassword] = from.username, from.password
	}
	g.env = process.List(env)
	if err := makeDir(g.home, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, []byte(gitConfig(from)), 0o600); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// gitConfig is the only configuration that git reads.
func gitConfig(from *remote) string {
	var b strings.Builder
	section := func(name string, lines ...string) {
		fmt.Fprintf(&b, "[%s]\n", name)
		for _, l := range lines {
			fmt.Fprintf(&b, "\t%s\n", l)
		}
	}
	section("init", "defaultBranch = main")
	section("core", "hooksPath = "+configQuote(os.DevNull))
	section("advice", "detachedHead = false")
	// Nothing goes on in the background.
	section("gc", "auto = 0", "autoDetach = false")
	section("maintenance", "auto = false")
	// A connection over which nothing comes for a minute is dead.
	section("http", "lowSpeedLimit = 1", "lowSpeedTime = 60")
	// No transport that runs a command. Paths of this machine are for the URL
	// that the manager named, not for a submodule that a repository names.
	section("protocol", "allow = never")
	for _, name := range []string{"http", "https", "ssh", "git"} {
		section(`protocol "`+name+`"`, "allow = always")
	}
	section(`protocol "file"`, "allow = user")
	if from.local != "" {
		// Named by the manager, whoever owns it.
		section("safe", "directory = "+configQuote(from.local), "directory = "+configQuote(filepath.Join(from.local, ".git")))
	}
	if from.scope != "" {
		// printf is part of every shell, so that nothing gets on a command line.
		section(`credential "`+from.scope+`"`, "helper = "+configQuote(
			`!f() { if test "$1" = get; then printf 'username=%s\npassword=%s\n' "$`+gitUsername+`" "$`+gitPassword+`"; fi; }; f`))
	}
	return b.String()
}

func configQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func (g *git) close() { _ = removeTree(g.home) }

// run executes git in the working tree. Everything it prints goes to out. It is
// recorded, and ends with ctx, like a host step (SPEC T2, T7).
func (g *git) run(ctx context.Context, out io.Writer, args ...string) error {
	marker := randomHex(16)
	cmd := &exec.Cmd{
		Path: g.program, Args: append([]string{"git"}, args...), Dir: g.dir,
		Env: append(slices.Clone(g.env), markerVariable+"="+marker),
	}
	if err := prepareCommand(cmd, nil); err != nil {
		return err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	var started *group
	res := driver.Resource{Kind: kindProcess, ID: marker, Labels: g.labels}
	cg := g.d.cgroups.named(g.name + "-" + marker)
	if cg != nil {
		if res.Data, err = json.Marshal(processData{Cgroup: cg.path}); err != nil {
			return err
		}
	}
	err = g.d.gate.create(ctx, g.ledger, res, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		started, err = startGroup(cmd, marker, cg)
		return err
	})
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return fmt.Errorf("start git: %w", err)
	}
	p := &hostProcess{group: started, reader: reader, out: out, exited: make(chan struct{}), drained: make(chan struct{})}
	go p.copy()
	go p.wait()
	r := &run{d: g.d, ledger: g.ledger}
	if err := r.recordStarted(ctx, res, started); err != nil {
		p.stop(patience{})
		return err
	}
	select {
	case <-p.exited:
		p.finish()
	case <-ctx.Done():
		p.stop(patience{})
		return gitStopped(ctx)
	}
	if code := exitCode(cmd.ProcessState); code != 0 {
		return &gitError{command: args[0], code: code}
	}
	return nil
}

func gitStopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("git was stopped: %w", cause)
	}
	return fmt.Errorf("git was stopped: %w: %w", cause, err)
}

// gitError says that git ran and failed.
type gitError struct {
	command string
	code    int
}

func (e *gitError) Error() string { return fmt.Sprintf("git %s: exit code %d", e.command, e.code) }

// ask returns what git prints, for commands that say little and use no network.
func (g *git) ask(ctx context.Context, args ...string) (string, error) {
	tail := &gitOutput{}
	err := g.run(ctx, tail, args...)
	tail.flush()
	return strings.TrimSpace(tail.text()), err
}
