package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/upgrade"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/task"
)

// UpgradeConfig says where upgrades of the delegate come from. It is exported so that the config can embed it.
type UpgradeConfig struct {
	UpgradeURL     string `env:"UPGRADE_URL" help:"address of the releases for upgrades, https:// or file:///; default: the delegate is not upgraded"`
	UpgradeKey     string `env:"UPGRADE_KEY" help:"public key of minisign that signs the releases of UPGRADE_URL, which begins with RW"`
	UpgradeEvery   int    `env:"UPGRADE_CHECK_INTERVAL_SECS" envDefault:"0" help:"time between checks for an upgrade, at least 10; 0 makes none, and only the command upgrade does one"`
	UpgradeTimeout int    `env:"UPGRADE_REGISTER_TIMEOUT_SECS" envDefault:"120" help:"how long a new version may take to register before the previous one returns"`
}

const minUpgradeInterval = 10

func (c *config) checkUpgrades(wrong func(setting string, bad bool, must string)) {
	wrong("UPGRADE_CHECK_INTERVAL_SECS", c.UpgradeEvery < 0 || c.UpgradeEvery > 0 && c.UpgradeEvery < minUpgradeInterval,
		fmt.Sprintf("0, or at least %d", minUpgradeInterval))
	wrong("UPGRADE_CHECK_INTERVAL_SECS", c.UpgradeEvery > 0 && runtime.GOOS == "windows", "0: on Windows a running program cannot replace itself")
	wrong("UPGRADE_REGISTER_TIMEOUT_SECS", c.UpgradeTimeout < 1, "at least 1")
	if c.UpgradeURL == "" && c.UpgradeKey == "" && c.UpgradeEvery == 0 {
		return
	}
	release := c.releases(nil)
	if err := release.Check(); err != nil {
		wrong("UPGRADE_URL, UPGRADE_KEY", true, "valid: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// releases returns where upgrades come from. All requests have the proxy and the certificates of the delegate.
func (c *config) releases(hc *http.Client) upgrade.Config {
	return upgrade.Config{
		Program: "delegate", Current: program.Version(), Address: c.UpgradeURL, Key: c.UpgradeKey, HTTPClient: hc,
		Bound: seconds(c.UpgradeTimeout + c.initTime()),
	}
}

// initTime is how long the init script may take before the registration, in seconds.
func (c *config) initTime() int {
	if strings.TrimSpace(c.InitScript) == "" {
		return 0
	}
	return c.InitTimeout
}

// upgradeCommand stages a release. A running delegate takes it up.
func upgradeCommand() *ffcli.Command {
	fs := flag.NewFlagSet("delegate upgrade", flag.ContinueOnError)
	file := fs.String(program.EnvFileFlag, "", "file with settings, NAME=value a line; the environment wins over it")
	to := fs.String("to", "", "version, such as v1.2.3; default: the stable one of UPGRADE_URL")
	downgrade := fs.Bool("allow-downgrade", false, "accept an older version")
	name := fs.String("name", service.DefaultName("delegate"), "name of the service of the system that root upgrades")
	check := fs.Bool("check", false, "only print the stable version")
	return &ffcli.Command{
		Name: "upgrade", ShortUsage: "delegate upgrade [--env-file FILE] [--to VERSION]", FlagSet: fs,
		ShortHelp: "replace the delegate by a signed release, while it runs",
		Exec: func(ctx context.Context, args []string) error {
			if _, err := program.Arguments(fs, args); err != nil {
				return err
			}
			s := service.Service{Program: "delegate", Name: *name}
			if at, self, ok := serviceOf(s); ok && !*check {
				return upgradeService(ctx, s, at, self, service.Upgrade{Version: *to, Downgrade: *downgrade})
			}
			cfg, _, err := loadConfig(*file, os.Environ())
			if err != nil {
				return err
			}
			c, err := newClient(cfg, zerolog.Nop())
			if err != nil {
				return err
			}
			defer c.CloseIdleConnections()
			releases := cfg.releases(outgoing(c))
			version := *to
			if version == "" {
				if version, err = upgrade.Stable(ctx, releases); err != nil {
					return err
				}
			}
			if *check {
				fmt.Printf("running: %s\nstable: %s\n", program.Version(), version)
				return nil
			}
			return runUpgrade(ctx, releases, version, *downgrade)
		},
	}
}

// serviceOf returns the paths of a service of the system if root runs its program outside of the service.
func serviceOf(s service.Service) (at service.Paths, self string, ok bool) {
	if os.Geteuid() != 0 || service.StateDir() != "" {
		return at, "", false
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return at, "", false
	}
	at, ok = s.Starts(self)
	return at, self, ok
}

// upgradeService has the running process of a service upgrade itself: only it may write where it keeps its upgrades, and it has
// the settings.
func upgradeService(ctx context.Context, s service.Service, at service.Paths, self string, want service.Upgrade) error {
	a, err := s.Upgrade(ctx, at, want)
	if err != nil {
		return err
	}
	if a.Current {
		fmt.Println(a.Version, "runs already")
		return nil
	}
	return waited(upgrade.FollowService(ctx, at.State, self, a.Version, followed(a.Version, s.Name)))
}

// followed prints that an upgrade is staged, and returns a function that prints its phases.
func followed(version, by string) func(phase string) {
	fmt.Printf("%s is verified: waiting for %s, which finishes what it cannot hand over\n", version, by)
	return func(phase string) { fmt.Println(phase) }
}

func runUpgrade(ctx context.Context, releases upgrade.Config, version string, downgrade bool) error {
	_, err := upgrade.Fetch(ctx, releases, version, downgrade, "")
	if errors.Is(err, upgrade.ErrCurrent) {
		fmt.Println(version, "runs already")
		return nil
	}
	if err == nil {
		err = upgrade.Replace(version)
	}
	if err != nil {
		return err
	}
	return waited(upgrade.Follow(ctx, version, followed(version, "the running delegate")))
}

// waited explains the result of following an upgrade.
func waited(err error) error {
	if errors.Is(err, upgrade.ErrWaiting) {
		fmt.Println("no running delegate has taken it up: it is tried at the next start of the delegate")
		return nil
	}
	return err
}

// trial reports whether this process only proves that it can register. Then it runs neither daemon sets nor perpetual tasks:
// the next process starts them.
func (c *config) trial() bool { return c.part != nil && c.part.Trial() }

// handsOver reports whether the next process continues the stages of this one.
func (c *config) handsOver() bool { return c.Resume && runtime.GOOS == "linux" }

// leaving refuses tasks that the next process could not continue, while this one waits for its end.
type leaving struct{ on atomic.Bool }

var errLeaving = errors.New("the delegate is about to be replaced by another version")

func (l *leaving) filter(e task.Event) error {
	if k := taskkind.Of(e.TaskType); l.on.Load() && (k == taskkind.Init || k == taskkind.Standalone) {
		return errLeaving
	}
	return nil
}

// updates keeps the delegate up to date, and proves a new version.
type updates struct {
	cfg     config
	pollers []*poller.Poller
	single  *standalone
	open    func() int // the number of open stages
	leaving *leaving
	log     zerolog.Logger
	// releases has the proxy and the certificates of the delegate.
	releases upgrade.Config

	urgent  chan struct{}
	stop    context.CancelFunc
	running sync.WaitGroup
}

func startUpdates(
	ctx context.Context, cfg config, c *client.HTTP, pollers []*poller.Poller, open func() int, single *standalone, l *leaving, log zerolog.Logger,
) *updates {
	u := &updates{cfg: cfg, pollers: pollers, open: open, single: single, leaving: l, log: log, releases: cfg.releases(outgoing(c)), urgent: make(chan struct{}), stop: func() {}}
	if cfg.part == nil {
		return u
	}
	ctx, u.stop = context.WithCancel(ctx)
	registered := make(chan struct{})
	if cfg.trial() {
		u.refuse("the trial of an upgrade")
	}
	u.running.Go(func() { u.waitRegistered(ctx, registered) })
	u.running.Go(func() {
		if err := cfg.part.Prove(ctx, registered, u.endTrial); err != nil {
			log.Warn().Err(err).Msg("cannot record the result of the upgrade")
		}
	})
	if cfg.trial() || runtime.GOOS == "windows" {
		return u
	}
	loop := &upgrade.Loop{
		Config: u.releases, Every: seconds(cfg.UpgradeEvery), Leave: u.leave, Stop: u.end, Urgent: u.urgent, Log: log,
	}
	if cfg.managed() {
		loop.Fleet = cfg.fleet(c)
	}
	u.running.Go(func() { loop.Run(ctx) })
	return u
}

// stage stages a version, by default the stable one. The loop takes it up.
func (u *updates) stage(ctx context.Context, want service.Upgrade) (out service.Upgraded, err error) {
	if out.Version = want.Version; out.Version == "" {
		if out.Version, err = upgrade.Stable(ctx, u.releases); err != nil {
			return out, err
		}
	}
	_, err = upgrade.Fetch(ctx, u.releases, out.Version, want.Downgrade, "")
	if errors.Is(err, upgrade.ErrCurrent) {
		out.Current, err = true, nil
	}
	return out, err
}

// fleet returns the manager's part in upgrades. The id stays the same through restarts.
func (c *config) fleet(hc *client.HTTP) *upgrade.Fleet {
	host, _ := os.Hostname() // only shown
	id := sha256.Sum256([]byte(strings.Join([]string{host, c.Name, c.LedgerDir}, "\x00")))
	return &upgrade.Fleet{
		URL: c.URL, Account: c.AccountID, Name: c.Name, Host: host, ID: hex.EncodeToString(id[:16]),
		HTTPClient: outgoing(hc), Token: func() (string, error) { return hc.Token(0) },
	}
}

// watchEvery is how often the state of the pollers is looked at, while an upgrade waits for it.
const watchEvery = 50 * time.Millisecond

// waitUntil returns when done does, or the error of ctx.
func waitUntil(ctx context.Context, done func() bool) error {
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// waitRegistered closes the channel when all servers have accepted the delegate.
func (u *updates) waitRegistered(ctx context.Context, registered chan<- struct{}) {
	if waitUntil(ctx, func() bool {
		for _, p := range u.pollers {
			if h := p.Health(); h.Contact.IsZero() || !h.Polling {
				return false
			}
		}
		return true
	}) == nil {
		close(registered)
	}
}

// refuse refuses new work, and an empty reason accepts it again.
func (u *updates) refuse(reason string) {
	u.leaving.on.Store(reason != "")
	for _, p := range u.pollers {
		p.SetMaintenance(reason)
	}
}

// handoverTimeout is how long a handover waits for tasks that cannot be handed over.
const handoverTimeout = 15 * time.Minute

// leave waits until no task runs that the next process cannot continue. Steps continue: the next process follows them.
// Without RESUME it waits for all stages. After an error the delegate accepts work again.
func (u *updates) leave(ctx context.Context, version string) error {
	within := handoverTimeout
	if !u.cfg.handsOver() {
		within = seconds(u.cfg.DrainTimeout)
	}
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	u.refuse("the upgrade to " + version)
	err := waitUntil(ctx, u.quiet)
	if err == nil {
		err = u.single.close(ctx)
	}
	if err != nil {
		u.log.Warn().Err(err).Str("version", version).Msg("the upgrade waits: tasks that cannot be handed over still run")
		u.refuse("")
	}
	return err
}

// quiet reports whether this process may be replaced.
func (u *updates) quiet() bool {
	for _, p := range u.pollers {
		running := p.Stats().Running
		if running[taskkind.Init.String()]+running[taskkind.Standalone.String()]+running[taskkind.Cleanup.String()] > 0 {
			return false
		}
		if !u.cfg.handsOver() && running[taskkind.Execute.String()] > 0 {
			return false
		}
	}
	return u.cfg.handsOver() || u.open() == 0
}

// end ends the delegate, which has closed parts of itself and could not be replaced.
func (u *updates) end() {
	for _, p := range u.pollers {
		go func() { _ = p.Shutdown(context.Background()) }() // serve waits for it
	}
}

// endTrial ends the process of a trial as a kill would. The next process continues its stages.
func (u *updates) endTrial() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if !u.cfg.handsOver() {
		for _, p := range u.pollers {
			_ = p.Shutdown(ctx)
		}
	}
	_ = u.single.close(ctx)
	os.Exit(0)
}

// refusedVersion is the status with which a manager refuses the version of a delegate.
const refusedVersion = http.StatusConflict

// close ends the updates, with the result of the delegate. If a manager has refused the version and the delegate checks
// for upgrades, it first waits for one.
func (u *updates) close(ctx context.Context, result error) error {
	defer u.running.Wait()
	defer u.stop()
	var refused *client.Error
	if !errors.As(result, &refused) || refused.Status != refusedVersion || u.cfg.UpgradeEvery == 0 || u.cfg.part == nil || u.cfg.trial() {
		return result
	}
	u.log.Error().Err(result).Msg("the manager refuses this version: waiting for an upgrade")
	close(u.urgent)
	<-ctx.Done()
	return result
}
