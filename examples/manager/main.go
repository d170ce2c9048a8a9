// Command manager is the server side as one program: the manager's API for
// delegates and submitters, and the log service.
//
//	go run ./examples/manager server
//
// Without an account it makes one for trying things out, and prints the settings
// of a delegate and the calls that submit a stage, watch it, abort it and read its
// log. To keep accounts, put them into the environment or into a file that
// --env-file names:
//
//	ACCOUNTS="demo=<32 hexadecimal characters>,other=<...>"
//
// Submitters and readers of logs need a token of the account, which
//
//	go run ./examples/manager token demo --env-file manager.env
//
// makes. It goes into the header "Authorization: Bearer <token>" of the manager's
// API (go doc ./manager), and into "X-Harness-Token: <token>" of the log service
// (go doc ./manager/logservice), where a step's log is under its log_key.
//
// What it knows is in a database in the data folder (--data-dir), encrypted with a
// key next to it unless STORE_KEY has one, and the logs are there too: both
// survive the program's end, also by kill -9. With --logs-archive complete logs go
// to a bucket (S3, Google Cloud Storage, Azure). The commands backup, restore and
// check are for the database. With STORE=redis://... any number of managers with
// the same settings are one, behind any load balancer. The first interrupt ends it
// in an orderly way, the second one at once.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/joho/godotenv"
)

type commands struct {
	Server serverCommand `cmd:"" help:"Serve until interrupted."`
	Token  tokenCommand  `cmd:"" help:"Print a token for calling the API on behalf of an account."`

	Backup  backupCommand  `cmd:"" help:"Copy the database to a file, also while the manager serves."`
	Restore restoreCommand `cmd:"" help:"Make a backup the database; there must be none."`
	Check   checkCommand   `cmd:"" help:"Read through the database and tell whether it is whole."`
}

type serverCommand struct {
	storeOptions

	Listen    string `default:"127.0.0.1:3460" help:"Address to listen on." env:"LISTEN"`
	PublicURL string `help:"How delegates reach this server; default: the address that it listens on." env:"PUBLIC_URL" name:"public-url"`
	TLSCert   string `help:"Certificate file; without one it serves plain HTTP." env:"TLS_CERT_FILE" name:"tls-cert" type:"existingfile" and:"tls"`
	TLSKey    string `help:"The certificate's key file." env:"TLS_KEY_FILE" name:"tls-key" type:"existingfile" and:"tls"`
	LogLevel  string `default:"info" help:"trace, debug, info, warn or error." env:"LOG_LEVEL"`
	EnvFile   string `name:"env-file" help:"File with ACCOUNTS." type:"existingfile" placeholder:"FILE"`

	HTTPBind string `help:"Address that /metrics, /healthz and /readyz are served at, or off; default: 127.0.0.1:3000, unless that is taken." env:"HTTP_BIND" name:"http-bind"`

	LogsDir        string `help:"Folder for the logs of steps; default: in the data folder, or in memory with STORE=memory." env:"LOGS_DIR"`
	LogsArchive    string `help:"Bucket for complete logs: a URL that begins with s3, gs, azblob or file; default: in the folder. Required with Redis." env:"LOGS_ARCHIVE" placeholder:"URL"`
	LogsMaxAgeDays int    `help:"How many days a complete log is kept; 0 keeps it until the room is needed." env:"LOGS_MAX_AGE_DAYS"`
}

// Run serves until it is interrupted.
func (c *serverCommand) Run() error {
	accounts, err := readAccounts(c.EnvFile)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	return serve(ctx, c, accounts, os.Stdout)
}

type tokenCommand struct {
	Account string        `arg:"" help:"The account's id."`
	For     time.Duration `default:"1h" help:"How long the token is good."`
	EnvFile string        `name:"env-file" help:"File with ACCOUNTS." type:"existingfile" placeholder:"FILE"`
}

// Run prints a token.
func (c *tokenCommand) Run() error {
	accounts, err := readAccounts(c.EnvFile)
	if err != nil {
		return err
	}
	token, err := issue(accounts, c.Account, c.For)
	if err != nil {
		return err
	}
	fmt.Println(token)
	return nil
}

// readAccounts reads ACCOUNTS from the environment, or else from the file.
func readAccounts(file string) (map[string]string, error) {
	text, ok := os.LookupEnv("ACCOUNTS")
	if !ok && file != "" {
		values, err := godotenv.Read(file)
		if err != nil {
			return nil, fmt.Errorf(`reading %s: a line is not of the form NAME="value"`, file) // which may be a secret
		}
		text = values["ACCOUNTS"]
	}
	return parseAccounts(text)
}

func main() {
	var c commands
	k := kong.Parse(&c, kong.Name("manager"), kong.Description("Hands stages and tasks to delegates."), kong.UsageOnError())
	k.FatalIfErrorf(k.Run())
}
