package local

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

// remote is where a clone comes from, without credentials in the URL.
type remote struct {
	url string
	// local is the path on this machine, if it is one.
	local string
	// scope is what the credentials are for: scheme, host and port. It is empty
	// without credentials.
	scope, username, password string
}

var (
	gitHelperURL = regexp.MustCompile(`^[A-Za-z0-9+.-]+::`)
	gitScpURL    = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):`)
	gitHost      = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?$`)
	windowsDrive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
)

// newRemote splits the URL. Its errors quote nothing of it, as it may hold
// credentials.
func newRemote(c *stage.Clone) (*remote, error) {
	raw := c.URL
	switch {
	case raw == "":
		return nil, errors.New("the clone has no url")
	case strings.HasPrefix(raw, "-") || strings.ContainsFunc(raw, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, errors.New("the clone's url is not valid")
	case gitHelperURL.MatchString(raw):
		return nil, errors.New("the clone's url names a transport that runs commands")
	}
	r := &remote{url: raw}
	switch {
	case strings.Contains(raw, "://"):
		if err := r.split(c); err != nil {
			return nil, err
		}
	case runtime.GOOS == "windows" && windowsDrive.MatchString(raw), filepath.IsAbs(raw):
		r.local = filepath.Clean(raw)
	case gitScpURL.MatchString(raw): // user@host:path, over ssh
	default:
		return nil, errors.New("the clone's url is neither a URL nor an absolute path")
	}
	if c.Auth != nil && (c.Auth.Username != "" || c.Auth.Password != "") {
		r.username, r.password = c.Auth.Username, c.Auth.Password
		if r.scope == "" {
			return nil, errors.New("credentials of a clone are for http and https alone; ssh takes its keys from the agent or the user's folder")
		}
		if err := r.checkAddress(c.Auth.Address); err != nil {
			return nil, err
		}
	}
	if strings.ContainsAny(r.username+r.password, "\r\n\x00") {
		return nil, errors.New("the clone's credentials hold a line break or a zero byte")
	}
	if r.username == "" && r.password == "" {
		r.scope = ""
	}
	return r, nil
}

// split takes what has a scheme apart.
func (r *remote) split(c *stage.Clone) error {
	u, err := url.Parse(c.URL)
	if err != nil {
		return errors.New("the clone's url is not valid") // err quotes it
	}
	if u.Scheme == "file" {
		if u.Host != "" && u.Host != "localhost" || u.User != nil {
			return errors.New("the clone's file url names a host")
		}
		r.local = filepath.FromSlash(u.Path)
		return nil
	}
	if !gitHost.MatchString(u.Host) {
		return errors.New("the clone's url has no valid host")
	}
	password, hasPassword := u.User.Password()
	switch u.Scheme {
	case "http", "https":
		r.username, r.password = u.User.Username(), password
		u.User = nil
		r.scope = u.Scheme + "://" + u.Host
	case "ssh", "git":
		if hasPassword {
			return errors.New("the clone's url has a password, which is for http and https alone")
		}
	default:
		return fmt.Errorf("the clone's url has the scheme %q; http, https, ssh, git and file are known", u.Scheme)
	}
	r.url = u.String()
	return nil
}

// checkAddress refuses credentials that are meant for another host.
func (r *remote) checkAddress(address string) error {
	if address == "" {
		return nil
	}
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	address, _, _ = strings.Cut(address, "/")
	_, host, _ := strings.Cut(r.scope, "://")
	name, _, _ := strings.Cut(host, ":")
	if !strings.EqualFold(address, host) && !strings.EqualFold(address, name) {
		return fmt.Errorf("the clone's credentials are not for %s", host)
	}
	return nil
}

// secrets are what no output may show. A name alone is a token.
func (r *remote) secrets() []string {
	if r.password != "" {
		return []string{r.password}
	}
	if r.username != "" {
		return []string{r.username}
	}
	return nil
}
