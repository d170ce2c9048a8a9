package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	docker "github.com/docker/docker/client"
	"github.com/rs/zerolog"
	"github.com/shirou/gopsutil/v4/disk"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/process"
)

// The results of a check. A warning is for a part that only some stages need.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkFailed  = "FAILED"
)

// checks prints results and counts the failed ones.
type checks struct {
	out    io.Writer
	failed int
}

func (c *checks) line(result, part, format string, args ...any) {
	if result == checkFailed {
		c.failed++
	}
	_, _ = fmt.Fprintf(c.out, "%-8s %-14s %s\n", result, part, fmt.Sprintf(format, args...))
}

// checkTimeout limits each call of a check.
const checkTimeout = 10 * time.Second

// check checks the settings, the certificates, the manager and its clock, the Docker
// engine, the disk and the control groups. It takes no port and no lock, and changes
// nothing. It returns an error if a part failed.
func check(ctx context.Context, out io.Writer, file string, environ []string) error {
	c := &checks{out: out}
	cfg, warnings, err := loadConfig(file, environ)
	if err != nil {
		c.line(checkFailed, "settings", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return c.result()
	}
	c.line(checkOK, "settings", "account %s, delegate %s, drivers %s", cfg.AccountID, cfg.Name, strings.Join(cfg.Drivers, ", "))
	for _, w := range warnings {
		c.line(checkWarning, "settings", "%s", w)
	}
	c.certificates(cfg, time.Now())
	if cfg.managed() {
		c.manager(ctx, cfg)
	}
	if cfg.DroneHost != "" {
		c.drone(ctx, cfg)
	}
	c.clock(ctx, cfg)
	c.engine(ctx, cfg)
	c.disk(ctx, cfg)
	c.controlGroups()
	return c.result()
}

func (c *checks) result() error {
	if c.failed > 0 {
		return fmt.Errorf("%d of the checks failed", c.failed)
	}
	return nil
}

func (c *checks) certificates(cfg config, now time.Time) {
	if cfg.CertsDir == "" && cfg.ClientCert == "" {
		c.line(checkOK, "certificates", "the system's authorities, no client certificate")
		return
	}
	if cfg.CertsDir != "" {
		_, n, err := authorities(cfg.CertsDir)
		switch {
		case err != nil:
			c.line(checkFailed, "certificates", "CERTS_DIR: %v", err)
		case n == 0:
			c.line(checkFailed, "certificates", "CERTS_DIR: %s has no file with a certificate in PEM", cfg.CertsDir)
		default:
			c.line(checkOK, "certificates", "%d files of authorities in %s", n, cfg.CertsDir)
		}
	}
	if cfg.ClientCert == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(cfg.ClientCert, cfg.ClientKey)
	switch {
	case err != nil:
		c.line(checkFailed, "certificates", "CLIENT_CERT_FILE, CLIENT_KEY_FILE: %v", err)
	case now.After(pair.Leaf.NotAfter):
		c.line(checkFailed, "certificates", "CLIENT_CERT_FILE expired on %s: renew it", pair.Leaf.NotAfter.Format(time.DateOnly))
	case now.Before(pair.Leaf.NotBefore):
		c.line(checkFailed, "certificates", "CLIENT_CERT_FILE is valid from %s on: check the clock", pair.Leaf.NotBefore.Format(time.DateOnly))
	default:
		c.line(checkOK, "certificates", "client certificate until %s", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
}

// authorities adds the certificates of a directory to those of the system. It also returns how many files had one.
func authorities(dir string) (*x509.CertPool, int, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	n := 0
	for _, e := range entries {
		if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil && pool.AppendCertsFromPEM(b) {
			n++
		}
	}
	return pool, n, nil
}

// drone pings the Drone server, which shows whether it is reachable and accepts the secret.
func (c *checks) drone(ctx context.Context, cfg config) {
	out, err := newClient(cfg, zerolog.Nop())
	if err != nil {
		c.line(checkFailed, "drone", "%v", err)
		return
	}
	defer out.CloseIdleConnections()
	d, err := openDrone(cfg, out, nil, zerolog.Nop())
	if err != nil {
		c.line(checkFailed, "drone", "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	switch err := d.Heartbeat(ctx, &client.Registration{}); {
	case err == nil:
		c.line(checkOK, "drone", "%s accepts the secret", cfg.droneURL())
	case errors.Is(err, client.ErrUnauthorized):
		c.line(checkFailed, "drone", "%s refuses the secret: check DRONE_RPC_SECRET (%v)", cfg.droneURL(), err)
	default:
		c.line(checkFailed, "drone", "cannot reach %s: check DRONE_RPC_HOST, DRONE_RPC_PROTO, the proxy and CERTS_DIR (%v)", cfg.droneURL(), err)
	}
}

// manager polls with an id that no delegate has. It registers nothing; the answer shows whether the manager is
// reachable and accepts the token.
func (c *checks) manager(ctx context.Context, cfg config) {
	m, err := newClient(cfg, zerolog.Nop(), client.WithRetries(client.Retries{Attempts: 1}))
	if err != nil {
		c.line(checkFailed, "manager", "%v", err)
		return
	}
	defer m.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err = m.Poll(ctx, "check-"+fileName(cfg.Name), client.PollQuery{})
	switch {
	case err == nil, errors.Is(err, client.ErrGone):
		c.line(checkOK, "manager", "%s accepts the token of account %s", cfg.URL, cfg.AccountID)
	case errors.Is(err, client.ErrUnauthorized):
		c.line(checkFailed, "manager", "%s refuses the token: check ACCOUNT_ID and TOKEN, and the clock (%v)", cfg.URL, err)
	default:
		c.line(checkFailed, "manager", "cannot reach %s: check URL, the proxy and CERTS_DIR (%v)", cfg.URL, err)
	}
}

// maxClockDifference is one minute. A token that the delegate makes is valid for 20 minutes.
const maxClockDifference = time.Minute

func (c *checks) clock(ctx context.Context, cfg config) {
	difference, err := clockDifference(ctx, cfg)
	switch {
	case err != nil:
		c.line(checkWarning, "clock", "cannot be compared with the manager's (%v)", err)
	case difference.Abs() > maxClockDifference:
		c.line(checkFailed, "clock", "%s off the manager's: synchronise it (NTP), or the manager refuses the delegate's tokens", difference)
	default:
		c.line(checkOK, "clock", "%s off the manager's", difference)
	}
}

// clockDifference returns how far this machine's clock is ahead of the manager's,
// rounded to seconds.
func clockDifference(ctx context.Context, cfg config) (time.Duration, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CertsDir != "" {
		pool, _, err := authorities(cfg.CertsDir)
		if err != nil {
			return 0, err
		}
		tlsConfig.RootCAs = pool
	}
	if cfg.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.ClientCert, cfg.ClientKey)
		if err != nil {
			return 0, err
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, cfg.URL, nil)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0, errors.New("it sends no Date")
	}
	return time.Since(theirs).Truncate(time.Second), nil
}

func (c *checks) engine(ctx context.Context, cfg config) {
	if !slices.Contains(cfg.Drivers, transaction.Local) {
		return
	}
	options := []docker.Opt{docker.FromEnv, docker.WithAPIVersionNegotiation()}
	if cfg.DockerHost != "" {
		options = append(options, docker.WithHost(cfg.DockerHost))
	}
	const remedy = "steps with an image will fail: start a Docker engine, or set DOCKER_HOST"
	e, err := docker.NewClientWithOpts(options...)
	if err != nil {
		c.line(checkWarning, "engine", "%s (%v)", remedy, err)
		return
	}
	defer e.Close() //nolint:errcheck // nothing was written
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	v, err := e.ServerVersion(ctx)
	if err != nil {
		c.line(checkWarning, "engine", "%s (%v)", remedy, err)
		return
	}
	c.line(checkOK, "engine", "Docker %s, API %s", v.Version, v.APIVersion)
}

// minFree is one gigabyte. One clone can fill less.
const minFree = 1 << 30

func (c *checks) disk(ctx context.Context, cfg config) {
	for setting, dir := range map[string]string{"WORK_DIR": cfg.WorkDir, "LEDGER_DIR": cfg.LedgerDir} {
		usage, err := disk.UsageWithContext(ctx, existing(dir))
		switch {
		case err != nil:
			c.line(checkWarning, "disk", "%s: the free space of %s is unknown (%v)", setting, dir, err)
		case usage.Free < minFree:
			c.line(checkFailed, "disk", "%s: %d MiB free at %s: free at least 1 GiB, or choose another directory", setting, usage.Free>>20, dir)
		default:
			c.line(checkOK, "disk", "%s: %d GiB free at %s", setting, usage.Free>>30, dir)
		}
	}
}

// existing returns dir, or the nearest directory above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func (c *checks) controlGroups() {
	if runtime.GOOS != "linux" {
		c.line(checkWarning, "control groups", "%s has none: a process that leaves its process group outlives its step", runtime.GOOS)
		return
	}
	dir := process.CgroupDir()
	if dir == "" {
		c.line(checkWarning, "control groups", "a process that leaves its process group outlives its step: run the delegate as root, or delegate a control group to it (systemd: Delegate=yes)")
		return
	}
	c.line(checkOK, "control groups", "%s", dir)
}
