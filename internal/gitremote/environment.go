package gitremote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The variables that hand the credentials to the credential helper. Only the environment of git's own
// processes contains them.
const (
	gitUsername = "DLITE_GIT_USERNAME"
	gitPassword = "DLITE_GIT_PASSWORD"
)

// gitInherited are the delegate's variables that git gets: for programs, the network and the ssh
// agent.
var gitInherited = []string{
	"PATH", "TMPDIR", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY",
	"SSH_AUTH_SOCK", "GIT_SSH_COMMAND",
	"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "TEMP", "TMP", "ProgramFiles", "ProgramData",
}

// Environment returns the environment of git for this remote. home is a directory with the
// configuration, see [Remote.WriteConfig].
func (r *Remote) Environment(home string) map[string]string {
	env := map[string]string{}
	for _, name := range gitInherited {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	for k, v := range map[string]string{
		"HOME": home, "XDG_CONFIG_HOME": home, "USERPROFILE": home,
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": configFile(home),
		"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never",
		"LC_ALL": "C", // the driver parses the messages
		// Without LFS the working tree keeps the pointers.
		"GIT_LFS_SKIP_SMUDGE": "1",
	} {
		env[k] = v
	}
	if env["GIT_SSH_COMMAND"] == "" {
		env["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15 -oServerAliveCountMax=4"
	}
	if r.Username != "" || r.Password != "" {
		env[gitUsername], env[gitPassword] = r.Username, r.Password
	}
	return env
}

// WriteConfig writes the configuration, which contains no secrets, to home.
func (r *Remote) WriteConfig(home string) error {
	return os.WriteFile(configFile(home), []byte(r.config()), 0o600)
}

func configFile(home string) string { return filepath.Join(home, ".gitconfig") }

// config returns the only configuration that git reads.
func (r *Remote) config() string {
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
	// Git must not leave background processes.
	section("gc", "auto = 0", "autoDetach = false")
	section("maintenance", "auto = false")
	// A connection without data for a minute is dead.
	section("http", "lowSpeedLimit = 1", "lowSpeedTime = 60")
	// Forbid transports that run commands. A local path is allowed for the URL that the manager named,
	// not for the submodules of a repository.
	section("protocol", "allow = never")
	for _, name := range []string{"http", "https", "ssh", "git"} {
		section(`protocol "`+name+`"`, "allow = always")
	}
	section(`protocol "file"`, "allow = user")
	if r.Local != "" {
		// The manager named it, so its owner does not matter.
		section("safe", "directory = "+configQuote(r.Local), "directory = "+configQuote(filepath.Join(r.Local, ".git")))
	}
	if r.Scope != "" {
		// printf is a builtin of every shell, so the credentials do not get on a command line.
		section(`credential "`+r.Scope+`"`, "helper = "+configQuote(
			`!f() { if test "$1" = get; then printf 'username=%s\npassword=%s\n' "$`+gitUsername+`" "$`+gitPassword+`"; fi; }; f`))
	}
	return b.String()
}

func configQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
