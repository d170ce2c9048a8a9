package gitremote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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

// Environment is git's, for this remote. home is a folder that has the
// configuration; see [Remote.WriteConfig].
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
		"LC_ALL": "C", // its messages are read
		// Filters are not set up: without LFS the pointers stay what they are.
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

// WriteConfig writes the configuration, which has no secrets, into home.
func (r *Remote) WriteConfig(home string) error {
	return os.WriteFile(configFile(home), []byte(r.config()), 0o600)
}

func configFile(home string) string { return filepath.Join(home, ".gitconfig") }

// config is the only configuration that git reads.
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
	if r.Local != "" {
		// Named by the manager, whoever owns it.
		section("safe", "directory = "+configQuote(r.Local), "directory = "+configQuote(filepath.Join(r.Local, ".git")))
	}
	if r.Scope != "" {
		// printf is part of every shell, so that nothing gets on a command line.
		section(`credential "`+r.Scope+`"`, "helper = "+configQuote(
			`!f() { if test "$1" = get; then printf 'username=%s\npassword=%s\n' "$`+gitUsername+`" "$`+gitPassword+`"; fi; }; f`))
	}
	return b.String()
}

func configQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
