// Command manager is the server side in one program: the manager's API for delegates and submitters, and the log
// service.
//
//	go run ./examples/manager server
//
// If no account is configured, it creates the account "demo". It prints the settings of a delegate, and the calls
// that submit a stage, watch it, follow its log and abort it. To keep accounts, set them in the environment or in
// the file that --env-file names:
//
//	ACCOUNTS="demo=<32 hexadecimal characters>,other=<...>"
//
// Every setting is a variable of the environment or a line of that file. All settings but secrets are flags too:
// --data-dir is DATA_DIR. A flag wins over the environment, and the environment over the file. An unknown name in
// the file is an error.
//
// Submitters and readers of logs need a token of the account:
//
//	go run ./examples/manager token demo
//
// The header "Authorization: Bearer <token>" carries it to the manager's API (go doc ./manager), and
// "X-Harness-Token: <token>" to the log service (go doc ./manager/logservice). There the key of a step's log is its
// log_key.
//
// The manager keeps its state in a database in the data directory (--data-dir). The database is encrypted with
// STORE_KEY, or else with a key in the same directory. The logs are in that directory too. Both survive kill -9.
// With --logs-archive complete logs go to a bucket (S3, Google Cloud Storage, Azure). The commands backup, restore
// and check work on the database. With STORE=redis://... any number of managers with the same settings serve
// together behind a load balancer. The first interrupt ends the manager in order, the second one at once.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/manager/api"
)

func main() {
	program.Run(context.Background(), "manager", "Hands stages and tasks to delegates.", append(
		service.Commands(service.Program{Name: "manager", About: "dlite manager", Check: checkFile, KeepData: true, Ports: true}),
		newServerCommand(), newTokenCommand(), newBackupCommand(), newRestoreCommand(), newCheckCommand())...)
}

// serverCommand holds the settings of the server.
type serverCommand struct {
	storeOptions
	serving.Options

	PublicURL      string
	LogsDir        string
	LogsArchive    string
	LogURLs        string
	LogsMaxAgeDays int

	Pipelines serving.Pipelines
	SignIn    signInOptions
	External  externalMetricsOptions

	AccountBudget, TotalBudget budgetFlag
	MinDelegateVersion         string
	StatusSocket               string
	Retention, PerpetualLease  time.Duration
	MaxFinished                int
	MaxFinishedBytes           sizeFlag
}

func newServerCommand() *ffcli.Command {
	c := &serverCommand{}
	return c.command(func(ctx context.Context, accounts map[string]string, _ []string) error {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		return service.Run(ctx, func(ctx context.Context) error { return serve(ctx, c, accounts, os.Stdout) })
	})
}

// The default of PERPETUAL_LEASE and its bounds.
const (
	defaultLease = 30 * time.Second
	minLease     = time.Second
	maxLease     = time.Hour
)

func (c *serverCommand) command(run func(context.Context, map[string]string, []string) error) *ffcli.Command {
	return newCommand("server", "serve until interrupted", &c.storeOptions, func(fs *flag.FlagSet) {
		c.Register(fs, "127.0.0.1:3460", "the API and the log service", defaultMetrics)
		fs.StringVar(&c.PublicURL, "public-url", "", "address of the manager and its log service for delegates, agents and submitters (default: the first address of --listen that requires no client certificate, or else the first)")
		fs.StringVar(&c.LogsDir, "logs-dir", "", "directory for the logs of steps (default: in the data directory, or in memory with STORE=memory)")
		fs.StringVar(&c.LogsArchive, "logs-archive", "", "bucket for complete logs: a URL that begins with s3, gs, azblob or file (default: in the directory); required with Redis")
		fs.Var(&c.AccountBudget, "account-budget", "what each account may occupy, such as works=1000,bytes=64MiB; also delegates, schedules, holds, streams, perpetual (docs/manager.md)")
		fs.Var(&c.TotalBudget, "total-budget", "what all accounts together may occupy, in the same form")
		fs.StringVar(&c.MinDelegateVersion, "min-delegate-version", "", "oldest version of delegates that may register, such as v1.2.3; versions of another form may always (default: all may)")
		fs.DurationVar(&c.PerpetualLease, "perpetual-lease", defaultLease, "how long a delegate keeps its perpetual tasks without contact, from 1s to 1h; 0 is 30s (docs/perpetual.md)")
		fs.DurationVar(&c.Retention, "retention", time.Hour, "how long the manager remembers ended stages and single tasks; 0 is 1h")
		fs.IntVar(&c.MaxFinished, "max-finished", 10_000, "largest number of ended stages and single tasks; the manager forgets the oldest; 0 is 10000")
		c.MaxFinishedBytes = 64 << 20
		fs.Var(&c.MaxFinishedBytes, "max-finished-bytes", "largest size of ended stages and single tasks in memory, such as 256MiB (docs/manager.md)")
		fs.StringVar(&c.StatusSocket, "status-socket", "", "path of the socket of \"manager status\" (default: status.sock in the folder that the service manager provides, or none)")
		c.Pipelines.Register(fs)
		c.SignIn.register(fs)
		c.External.register(fs)
		fs.StringVar(&c.LogURLs, "log-urls", "", "comma-separated addresses of other log services that init.log_config of a submission may name (default: only this one)")
		fs.IntVar(&c.LogsMaxAgeDays, "logs-max-age-days", 0, "days after which a complete log is removed; 0 keeps it until its room is needed")
	}, run)
}

// tokenCommand prints tokens.
type tokenCommand struct {
	storeOptions
	Account  string
	For      time.Duration
	ReadOnly bool
	Role     string
}

func newTokenCommand() *ffcli.Command {
	c := &tokenCommand{}
	return newCommand("token", "print a token for calling the API on behalf of an account", &c.storeOptions, func(fs *flag.FlagSet) {
		fs.DurationVar(&c.For, "for", time.Hour, "how long the token is valid")
		fs.BoolVar(&c.ReadOnly, "read-only", false, "the same as --role read")
		fs.StringVar(&c.Role, "role", "", "what the token permits: read, run or operate (docs/manager.md); without a role it permits everything, also what delegates do")
	}, func(_ context.Context, accounts map[string]string, args []string) error {
		c.Account = args[0]
		return c.print(accounts, os.Stdout, os.Stderr)
	}, "account")
}

// print writes a token to out, and its time of expiry to notes.
func (c *tokenCommand) print(accounts map[string]string, out, notes io.Writer) (err error) {
	if len(accounts) == 0 {
		if accounts, err = c.demoAccount(); err != nil {
			return err
		}
	}
	if c.ReadOnly {
		c.Role = cmp.Or(c.Role, string(api.RoleRead))
		if c.Role != string(api.RoleRead) {
			return fmt.Errorf("--read-only and --role %s contradict each other: give one of them", c.Role)
		}
	}
	token, err := issue(accounts, c.Account, c.For, c.Role)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(notes, "manager: this token of account %s is valid for %s, until %s\n",
		c.Account, c.For, time.Now().Add(c.For).Format(time.DateTime))
	_, err = fmt.Fprintln(out, token)
	return err
}
