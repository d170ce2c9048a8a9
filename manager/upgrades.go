package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// Upgrade returns the update of an account's delegates. It fails with [ErrNotFound] if there is none.
func (m *Manager) Upgrade(account string) (api.Upgrade, error) {
	now := m.journal.Now()
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	r := m.core.rollouts[account]
	if r == nil {
		return api.Upgrade{}, fmt.Errorf("the update of the delegates: %w", ErrNotFound)
	}
	u := r.view(now)
	u.Versions = map[string]int{}
	for _, d := range m.core.queue.Delegates(account) {
		if d.State != queue.Gone {
			u.Versions[d.Version]++
		}
	}
	return u, nil
}

// SetUpgrade begins the update of an account's delegates, changes it, or continues a stopped one. It fails with
// [ErrInvalid].
func (m *Manager) SetUpgrade(ctx context.Context, account string, u api.Upgrade) (api.Upgrade, error) {
	order := api.Upgrade{
		Version: u.Version, Share: cmp.Or(u.Share, defaultShare), MaxFailures: cmp.Or(u.MaxFailures, 1),
		ReturnMS: cmp.Or(u.ReturnMS, defaultReturn.Milliseconds()), Paused: u.Paused,
	}
	if err := cmp.Or(m.checkAccount(account), checkUpgrade(&order)); err != nil {
		return api.Upgrade{}, err
	}
	if _, err := m.applyCommand(ctx, &command{Account: account, SetUpgrade: &order}); err != nil {
		return api.Upgrade{}, err
	}
	return m.Upgrade(account)
}

// DeleteUpgrade ends the update of an account's delegates. It fails with [ErrNotFound].
func (m *Manager) DeleteUpgrade(ctx context.Context, account string) error {
	_, err := m.applyCommand(ctx, &command{Account: account, SetUpgrade: &api.Upgrade{}})
	return err
}

// isVersion reports whether a text is a version such as v1.2.3.
func isVersion(v string) bool { return len(v) <= 64 && semver.IsValid(v) && semver.Canonical(v) == v }

func checkUpgrade(u *api.Upgrade) error {
	if !isVersion(u.Version) {
		return fmt.Errorf("%w: version %.80q must be of the form v1.2.3", ErrInvalid, u.Version)
	}
	number, isPercent := strings.CutSuffix(u.Share, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || isPercent && n > 100 || n > maxAway || strconv.Itoa(n) != number {
		return fmt.Errorf("%w: share %.40q must be a number from 1 to %d, or from 1%% to 100%%", ErrInvalid, u.Share, maxAway)
	}
	if u.MaxFailures < 1 || u.MaxFailures > maxFailedAway {
		return fmt.Errorf("%w: max_failures must be from 1 to %d", ErrInvalid, maxFailedAway)
	}
	if u.ReturnMS < 1 || u.ReturnMS > maxReturn.Milliseconds() {
		return fmt.Errorf("%w: return_ms must be from 1 to %d", ErrInvalid, maxReturn.Milliseconds())
	}
	return nil
}

func (m *Manager) showUpgrade(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	u, err := m.Upgrade(account(r))
	if errors.Is(err, ErrNotFound) {
		err = nil // an answer without a version: a page that asks again and again must not log failures
	}
	reply(w, u, err)
}

func (m *Manager) putUpgrade(w http.ResponseWriter, r *http.Request) {
	var u api.Upgrade
	if !m.decodeStrict(w, r, &u, knownShapes().upgrade) {
		return
	}
	u, err := m.SetUpgrade(r.Context(), account(r), u)
	reply(w, u, err)
}

func (m *Manager) deleteUpgrade(w http.ResponseWriter, r *http.Request) {
	replyEmpty(w, m.DeleteUpgrade(r.Context(), account(r)))
}

// askUpgrade serves the call of a delegate. Only a call that changes something becomes a command.
func (m *Manager) askUpgrade(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID      string `json:"id"`
		Name    string `json:"delegateName"`
		Host    string `json:"hostName"`
		Version string `json:"version"`
		Failed  string `json:"failed"`
		Reason  string `json:"reason"`
	}
	if !m.decodeBody(w, r, &in) {
		return
	}
	a := askCommand{ID: in.ID, Name: in.Name, Host: in.Host, Version: in.Version, Failed: in.Failed, Reason: in.Reason}
	if err := a.check(); err != nil {
		writeError(w, err)
		return
	}
	if p, changes := m.core.wouldAnswer(account(r), &a, m); !changes {
		writeJSON(w, http.StatusOK, p)
		return
	}
	got, err := m.applyCommand(r.Context(), &command{Account: account(r), AskUpgrade: &a})
	if err != nil {
		writeError(w, err)
		return
	}
	if e := m.cfg.Logger.Info(); got.permission.Granted || a.Failed != "" {
		e.Str("account_id", account(r)).Str("name", a.Name).Str("from", a.Version).Str("to", got.permission.Version).
			Bool("granted", got.permission.Granted).Str("failed", a.Failed).Str("reason", a.Reason).Msg("a delegate has asked for an upgrade")
	}
	writeJSON(w, http.StatusOK, got.permission)
}

func (a *askCommand) check() error {
	if a.ID == "" {
		return fmt.Errorf("%w: id is missing", ErrInvalid)
	}
	return firstError(
		checkID("id", a.ID), checkSize("delegateName", len(a.Name), maxName), checkSize("hostName", len(a.Host), maxName),
		checkSize("version", len(a.Version), maxName), checkSize("failed", len(a.Failed), maxName), checkSize("reason", len(a.Reason), maxUpgradeNote),
	)
}

// wouldAnswer returns the answer to a delegate, and reports whether the call would change the state.
func (c *core) wouldAnswer(account string, a *askCommand, m *Manager) (permission, bool) {
	now := m.journal.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rollouts[account]
	if r == nil {
		return permission{}, false
	}
	r = r.clone()
	if r.Away == nil {
		r.Away = map[string]api.UpgradeDelegate{}
	}
	return r.ask(a, c.alive(account), now)
}

// errOldDelegate means that the manager does not accept the version of a delegate.
var errOldDelegate = errors.New("the delegate is too old")

// checkVersion refuses a delegate that is older than the manager accepts. A version of another form than v1.2.3
// passes: development builds and foreign delegates have such versions.
func (m *Manager) checkVersion(version string) error {
	if m.cfg.MinDelegateVersion == "" || !semver.IsValid(version) || semver.Compare(version, m.cfg.MinDelegateVersion) >= 0 {
		return nil
	}
	return fmt.Errorf("%w: the delegate has the version %.80s, and this manager accepts %s and newer ones: upgrade the delegate (delegate upgrade)",
		errOldDelegate, version, m.cfg.MinDelegateVersion)
}
