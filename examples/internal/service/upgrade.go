package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
)

// Upgrade is an order to a running program to upgrade itself.
type Upgrade struct {
	Version   string `json:"version,omitempty"` // empty is the stable one
	Downgrade bool   `json:"downgrade,omitempty"`
}

// Upgraded is the answer to an Upgrade.
type Upgraded struct {
	Version string `json:"version,omitempty"`
	Current bool   `json:"current,omitempty"` // the version runs already
	Error   string `json:"error,omitempty"`
}

const (
	upgradePath = "/upgrade"
	// maxOrder limits the size of an Upgrade.
	maxOrder = 4 << 10
)

// AskUpgrade has the running program at a socket download, verify and stage an upgrade, with the settings and the rights of the
// program. The error is ErrNotRunning if there is no process.
func AskUpgrade(ctx context.Context, socket string, u Upgrade) (a Upgraded, err error) {
	body, err := json.Marshal(u)
	if err != nil {
		return a, err
	}
	switch status, err := call(ctx, socket, http.MethodPost, upgradePath, bytes.NewReader(body), &a); {
	case err != nil:
		return a, err
	case status == http.StatusNotFound:
		return a, fmt.Errorf("the process at %s does not upgrade itself", socket)
	case a.Error != "":
		return a, fmt.Errorf("the running process cannot upgrade itself: %q", a.Error)
	case status != http.StatusOK || a.Version == "":
		return a, fmt.Errorf("the process at %s gave an answer that names no version (%d)", socket, status)
	}
	return a, nil
}

// peerKey is the key of a connection in the context of its requests.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, c)
}

// serveUpgrade answers an Upgrade of root. The user of the program can connect to the socket too, and steps may run as this user:
// steps must not choose the version of the delegate.
func (h *Host) serveUpgrade(w http.ResponseWriter, r *http.Request) {
	var u Upgrade
	var a Upgraded
	if c, ok := r.Context().Value(peerKey{}).(net.Conn); !ok || !isRoot(c) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(Upgraded{Error: "only root may ask for an upgrade"}) // the caller may be gone
		return
	}
	status := http.StatusOK
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder))
	d.DisallowUnknownFields()
	err := d.Decode(&u)
	if err == nil {
		a, err = h.cfg.Upgrade(r.Context(), u)
	}
	if err != nil {
		a, status = Upgraded{Error: err.Error()}, http.StatusConflict
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the caller may be gone
}

// Starts reports whether this service of the system is installed with systemd and starts a program file. Its process cannot write
// to the directory of that file, and keeps upgrades in its state directory.
func (s Service) Starts(file string) (Paths, bool) {
	if s.User {
		return Paths{}, false
	}
	p, err := s.Paths()
	if err != nil || p.Definition == "" {
		return Paths{}, false
	}
	unit, err := os.ReadFile(p.Definition)
	return p, err == nil && starts(unit, file)
}

// starts reports whether a unit starts a program file.
func starts(unit []byte, file string) bool {
	for lines := bufio.NewScanner(bytes.NewReader(unit)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "ExecStart="+quote(file)+" ") {
			return true
		}
	}
	return false
}

// explainAbsent says what to do if no process takes an upgrade.
func explainAbsent(s Service, err error) error {
	if errors.Is(err, ErrNotRunning) {
		return fmt.Errorf("%s keeps its upgrades itself, and does not run: start it with %q and try again: %w", s.Name, s.Program+" start"+s.flags(), err)
	}
	return err
}

// Upgrade is AskUpgrade for the process of a service at these paths.
func (s Service) Upgrade(ctx context.Context, at Paths, u Upgrade) (Upgraded, error) {
	a, err := AskUpgrade(ctx, at.Socket(), u)
	return a, explainAbsent(s, err)
}
