// Package gitremote prepares git for one remote. It takes the credentials out of the URL, and sets up
// an environment in which git ignores the configuration, attributes, hooks, templates, credential
// helpers and .netrc of the machine and the user, and never prompts.
//
//	remote, err := gitremote.New(clone)
//	if err != nil {
//		return err
//	}
//	err = remote.WriteConfig(home)
//	cmd.Env = process.List(remote.Environment(home))
//
// Start reading at remote.go.
package gitremote

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// Remote is the source of a clone.
type Remote struct {
	URL string
	// Local is the path of a remote on this machine, otherwise "".
	Local string
	// Scope is the scheme, host and port that the credentials are for. It is "" without credentials.
	Scope, Username, Password string
}

var (
	gitHelperURL = regexp.MustCompile(`^[A-Za-z0-9+.-]+::`)
	gitScpURL    = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):`)
	gitHost      = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?$`)
	windowsDrive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
)

// New parses the URL of a clone. Its errors do not quote the URL, which may hold credentials.
func New(c *stage.Clone) (*Remote, error) {
	raw := c.URL
	switch {
	case raw == "":
		return nil, errors.New("the clone has no url")
	case strings.HasPrefix(raw, "-") || strings.ContainsFunc(raw, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, errors.New("the clone's url is not valid")
	case gitHelperURL.MatchString(raw):
		return nil, errors.New("the clone's url names a transport that runs commands")
	}
	r := &Remote{URL: raw}
	switch {
	case strings.Contains(raw, "://"):
		if err := r.split(c); err != nil {
			return nil, err
		}
	case runtime.GOOS == "windows" && windowsDrive.MatchString(raw), filepath.IsAbs(raw):
		r.Local = filepath.Clean(raw)
	case gitScpURL.MatchString(raw): // user@host:path, over ssh
	default:
		return nil, errors.New("the clone's url is neither a URL nor an absolute path")
	}
	if c.Auth != nil && (c.Auth.Username != "" || c.Auth.Password != "") {
		r.Username, r.Password = c.Auth.Username, c.Auth.Password
		if r.Scope == "" {
			return nil, errors.New("credentials of a clone work only with http and https; ssh takes its keys from the agent or the user's directory")
		}
		if err := r.checkAddress(c.Auth.Address); err != nil {
			return nil, err
		}
	}
	if strings.ContainsAny(r.Username+r.Password, "\r\n\x00") {
		return nil, errors.New("the clone's credentials hold a line break or a zero byte")
	}
	if r.Username == "" && r.Password == "" {
		r.Scope = ""
	}
	return r, nil
}

// split parses a URL with a scheme.
func (r *Remote) split(c *stage.Clone) error {
	u, err := url.Parse(c.URL)
	if err != nil {
		return errors.New("the clone's url is not valid") // err quotes it
	}
	if u.Scheme == "file" {
		if u.Host != "" && u.Host != "localhost" || u.User != nil {
			return errors.New("the clone's file url names a host")
		}
		r.Local = filepath.FromSlash(u.Path)
		return nil
	}
	if !gitHost.MatchString(u.Host) {
		return errors.New("the clone's url has no valid host")
	}
	password, hasPassword := u.User.Password()
	switch u.Scheme {
	case "http", "https":
		r.Username, r.Password = u.User.Username(), password
		u.User = nil
		r.Scope = u.Scheme + "://" + u.Host
	case "ssh", "git":
		if hasPassword {
			return errors.New("the clone's url has a password, which works only with http and https")
		}
	default:
		return fmt.Errorf("the clone's url has the scheme %q; http, https, ssh, git and file are known", u.Scheme)
	}
	r.URL = u.String()
	return nil
}

// checkAddress rejects credentials for another host.
func (r *Remote) checkAddress(address string) error {
	if address == "" {
		return nil
	}
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	address, _, _ = strings.Cut(address, "/")
	_, host, _ := strings.Cut(r.Scope, "://")
	name, _, _ := strings.Cut(host, ":")
	if !strings.EqualFold(address, host) && !strings.EqualFold(address, name) {
		return fmt.Errorf("the clone's credentials are not for %s", host)
	}
	return nil
}

// Secrets returns the values that no output may show. A user name without a password is a token.
func (r *Remote) Secrets() []string {
	if r.Password != "" {
		return []string{r.Password}
	}
	if r.Username != "" {
		return []string{r.Username}
	}
	return nil
}

var objectName = regexp.MustCompile(`^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`)

// IsCommit reports whether s is a full commit hash.
func IsCommit(s string) bool { return objectName.MatchString(s) }

// IsRef reports whether s can name a ref. An option or a refspec is not a name.
func IsRef(s string) bool {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }) {
		return false
	}
	for _, part := range strings.Split(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return s[0] != '-' && s[0] != '+' && s != "@" && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..") && !strings.Contains(s, "@{")
}
