// Command manager is the server side as one program: the manager's API for delegates
// and submitters, and the log service.
//
//	go run ./examples/manager server
//
// Without an account it makes the account "demo", and prints the settings of a
// delegate and the calls that submit a stage, watch it, follow its log and abort it.
// To keep accounts, set them in the environment or in the file that --env-file names:
//
//	ACCOUNTS="demo=<32 hexadecimal characters>,other=<...>"
//
// Every setting can be a flag, a variable of the environment or a line of that file;
// a flag wins over the environment, and the environment over the file. An unknown
// name in the file is an error.
//
// Submitters and readers of logs need a token of the account:
//
//	go run ./examples/manager token demo
//
// The header "Authorization: Bearer <token>" carries it to the manager's API (go doc
// ./manager), and "X-Harness-Token: <token>" to the log service (go doc
// ./manager/logservice), where the key of a step's log is its log_key.
//
// The manager keeps its state in a database in the data directory (--data-dir). The
// database is encrypted with STORE_KEY, or else with a key in the same directory. The
// logs are in that directory too. Both survive kill -9. With --logs-archive complete
// logs go to a bucket (S3, Google Cloud Storage, Azure). The commands backup, restore
// and check work on the database. With STORE=redis://... any number of managers with
// the same settings serve together behind a load balancer. The first interrupt ends
// the manager in order, the second one at once.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/delegate-io/dlite/examples/internal/program"
)

type commands struct {
	Server serverCommand `cmd:"" help:"Serve until interrupted."`
	Token  tokenCommand  `cmd:"" help:"Print a token for calling the API on behalf of an account."`

	Version     versionCommand   `cmd:"" help:"Print the version."`
	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`

	Backup  backupCommand  `cmd:"" help:"Copy the database to a file, also while the manager serves."`
	Restore restoreCommand `cmd:"" help:"Make a backup the database; there must be none."`
	Check   checkCommand   `cmd:"" help:"Read the whole database and report whether it is sound."`
}

type serverCommand struct {
	storeOptions
	settingsFile

	Listen    string `default:"127.0.0.1:3460" help:"Address to listen on." env:"LISTEN"`
	PublicURL string `help:"How delegates reach this server; default: the address that it listens on." env:"PUBLIC_URL" name:"public-url"`
	TLSCert   string `help:"Certificate file; without one it serves plain HTTP." env:"TLS_CERT_FILE" name:"tls-cert" type:"existingfile" and:"tls"`
	TLSKey    string `help:"The certificate's key file." env:"TLS_KEY_FILE" name:"tls-key" type:"existingfile" and:"tls"`
	LogLevel  string `default:"info" help:"trace, debug, info, warn or error." env:"LOG_LEVEL"`

	HTTPBind string `help:"Address that serves /metrics, /healthz and /readyz, or off; default: 127.0.0.1:3001, unless that is taken." env:"HTTP_BIND" name:"http-bind"`

	LogsDir        string `help:"Folder for the logs of steps; default: in the data folder, or in memory with STORE=memory." env:"LOGS_DIR"`
	LogsArchive    string `help:"Bucket for complete logs: a URL that begins with s3, gs, azblob or file; default: in the folder. Required with Redis." env:"LOGS_ARCHIVE" placeholder:"URL"`
	LogsMaxAgeDays int    `help:"How many days a complete log is kept; 0 keeps it until the room is needed." env:"LOGS_MAX_AGE_DAYS"`
}

// Run serves until it is interrupted.
func (c *serverCommand) Run() error {
	accounts, err := c.accounts()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return serve(ctx, c, accounts, os.Stdout)
}

type tokenCommand struct {
	storeOptions
	settingsFile
	Account string        `arg:"" help:"The account's id."`
	For     time.Duration `default:"1h" help:"How long the token is valid."`
}

// Run prints a token on the standard output, and how long it is valid on the standard
// error.
func (c *tokenCommand) Run() error { return c.print(os.Stdout, os.Stderr) }

func (c *tokenCommand) print(out, notes io.Writer) error {
	accounts, err := c.accounts()
	if err == nil && len(accounts) == 0 {
		accounts, err = c.demoAccount()
	}
	if err != nil {
		return err
	}
	token, err := issue(accounts, c.Account, c.For)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(notes, "manager: this token of account %s is valid for %s, until %s\n",
		c.Account, c.For, time.Now().Add(c.For).Format(time.DateTime))
	_, err = fmt.Fprintln(out, token)
	return err
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run() error {
	fmt.Println(program.Describe("manager"))
	return nil
}

func main() {
	var c commands
	k := kong.Parse(&c, kong.Name("manager"), kong.Description("Hands stages and tasks to delegates."), kong.UsageOnError(),
		kong.Vars{"version": program.Describe("manager")})
	k.FatalIfErrorf(k.Run())
}
