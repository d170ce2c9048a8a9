package manager

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// checkLogURL refuses an init whose log_config makes the manager send requests to an
// address that the operator did not allow. The manager writes to the log of an init,
// and only delegates write to the logs of steps.
func (m *Manager) checkLogURL(account, stageID string, c *stage.LogConfig) error {
	if c == nil || m.mayWriteLog(account, stageID, c) {
		return nil
	}
	return fmt.Errorf("%w: init.log_config.url: the manager may not write to this log service: leave log_config out, or ask the operator to allow the address",
		ErrInvalid)
}

// mayWriteLog reports whether the log is in the manager's own log service or in one of
// LogURLs.
func (m *Manager) mayWriteLog(account, stageID string, c *stage.LogConfig) bool {
	under := func(base string) bool { return isBelow(c.URL, base) }
	if slices.ContainsFunc(m.cfg.LogURLs, under) {
		return true
	}
	if m.cfg.Logs == nil {
		return false
	}
	own := m.cfg.Logs(account, stageID, safeKey(stageID)+"/")
	return own != nil && under(own.URL)
}

// isBelow reports whether a URL has the scheme, host and port of base, and a path that is
// the path of base or below it.
func isBelow(text, base string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return false
	}
	b, err := url.Parse(base)
	if err != nil || b.Host == "" || u.Scheme != b.Scheme || !strings.EqualFold(u.Hostname(), b.Hostname()) || portOf(u) != portOf(b) {
		return false
	}
	slashed := func(p string) string { return strings.TrimSuffix(p, "/") + "/" }
	clean := path.Clean("/" + u.Path)
	return u.RawPath == "" && slashed(clean) == slashed(cmp.Or(u.Path, "/")) && strings.HasPrefix(slashed(clean), slashed(cmp.Or(b.Path, "/")))
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}
