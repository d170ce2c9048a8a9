package api

import (
	"context"
	"net/http"
	"time"
)

// Upgrade is the update of the account's delegates to a version, a share of them at a time. Delegates that check for
// upgrades ask for it (docs/upgrading.md).
type Upgrade struct {
	// Version is the version that delegates shall have, such as v1.2.3.
	Version string `json:"version"`
	// Share is how many delegates may be away at once: a number such as "2", or a share of those that are alive such as "10%",
	// which is at least one. Empty means 10%.
	Share string `json:"share,omitempty"`
	// MaxFailures is the number of failures after which the manager permits no more upgrades. 0 means 1, and the most is 1,000.
	MaxFailures int `json:"max_failures,omitempty"`
	// ReturnMS is how long a delegate may be away, in milliseconds. Then it counts as a failure. 0 means 30 minutes, and the
	// most is a week.
	ReturnMS int64 `json:"return_ms,omitempty"`
	// Paused permits no upgrades.
	Paused bool `json:"paused,omitempty"`

	// The manager sets the members below.

	// State is "running", "paused", or "stopped" after MaxFailures failures. SetUpgrade continues a stopped one.
	State string `json:"state,omitempty"`
	// Away are the delegates that have a permission and have not returned. Failed are those that did not return, or
	// returned with their previous version.
	Away   []UpgradeDelegate `json:"away,omitempty"`
	Failed []UpgradeDelegate `json:"failed,omitempty"`
	// Returned is the number of delegates that have returned with the version.
	Returned int `json:"returned,omitempty"`
	// Versions is the number of delegates that are alive, by version.
	Versions map[string]int `json:"versions,omitempty"`
	// UpdatedAt is when the update was set last.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// UpgradeDelegate is a delegate that has got the permission to upgrade.
type UpgradeDelegate struct {
	ID   string `json:"id"` // the same through upgrades; not the id of the registration
	Name string `json:"name"`
	Host string `json:"host,omitempty"`
	From string `json:"from"` // its version before
	To   string `json:"to"`
	// At is when it got the permission.
	At time.Time `json:"at"`
	// Reason is why it failed.
	Reason string `json:"reason,omitempty"`
}

// Upgrade returns the update of the account's delegates. If there is none, it fails with a status of 404.
func (c *Client) Upgrade(ctx context.Context) (Upgrade, error) {
	u, err := fetch[Upgrade](ctx, c, get("api", "upgrade"))
	if err == nil && u.Version == "" {
		err = &Error{Status: http.StatusNotFound, Message: "there is no update of the delegates"}
	}
	return u, err
}

// SetUpgrade begins an update, changes it, or continues a stopped one: its failures are forgotten. Delegates that are away
// still count.
func (c *Client) SetUpgrade(ctx context.Context, u Upgrade) (Upgrade, error) {
	u = Upgrade{Version: u.Version, Share: u.Share, MaxFailures: u.MaxFailures, ReturnMS: u.ReturnMS, Paused: u.Paused}
	return fetch[Upgrade](ctx, c, put("api", "upgrade").with(u))
}

// DeleteUpgrade ends an update. Delegates that check for upgrades then follow the stable version of their releases.
func (c *Client) DeleteUpgrade(ctx context.Context) error {
	return c.run(ctx, remove("api", "upgrade"))
}
