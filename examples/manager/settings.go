package main

import (
	"context"
	"errors"
	"flag"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/serving"
)

// newCommand returns a command with the flags of the store, --env-file, and the flags that register adds. run gets
// the accounts and the named arguments.
func newCommand(
	name, help string, store *storeOptions, register func(*flag.FlagSet),
	run func(ctx context.Context, accounts map[string]string, args []string) error, arguments ...string,
) *ffcli.Command {
	fs := flag.NewFlagSet("manager "+name, flag.ContinueOnError)
	file := fs.String(program.EnvFileFlag, "", "file with settings, NAME=value a line")
	store.register(fs)
	register(fs)
	usage := "manager " + name + " [flags]"
	for _, a := range arguments {
		usage += " <" + a + ">"
	}
	return &ffcli.Command{
		Name: name, ShortUsage: usage, ShortHelp: help, FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			args, err := program.Arguments(fs, args, arguments...)
			if err != nil {
				return err
			}
			accounts, err := resolve(fs, *file, store)
			if err != nil && name == "server" {
				err = service.WrongSettings(err)
			}
			if err != nil {
				return err
			}
			return run(ctx, accounts, args)
		},
	}
}

// errNoAccounts: the manager prints the account that it creates for first experiments, and the output of a service is
// kept.
var errNoAccounts = errors.New(`ACCOUNTS is missing: a service needs it, such as ACCOUNTS="demo=<what openssl rand -hex 16 prints>"`)

// checkFile checks a file of settings for a service.
func checkFile(file string) error {
	c := &serverCommand{}
	command := c.command(func(_ context.Context, accounts map[string]string, _ []string) error {
		if len(accounts) == 0 {
			return errNoAccounts
		}
		return c.checkSettings()
	})
	return command.ParseAndRun(context.Background(), []string{"--" + program.EnvFileFlag, file})
}

// resolve completes the flags from the environment and the file, and returns the accounts. ACCOUNTS, STORE_KEY,
// OPERATOR_TOKEN and OIDC_CLIENT_SECRET are secrets, and PIPELINES_DATABASE and PIPELINES_REDIS may contain one, so they have no flag.
func resolve(fs *flag.FlagSet, file string, store *storeOptions) (map[string]string, error) {
	var accounts string
	secrets := map[string]*string{
		"ACCOUNTS": &accounts, "STORE_KEY": &store.StoreKey, "OPERATOR_TOKEN": &store.OperatorToken,
		"PIPELINES_DATABASE": &store.PipelinesDatabase, "PIPELINES_REDIS": &store.PipelinesRedis, "OIDC_CLIENT_SECRET": &store.OIDCSecret,
	}
	// One file serves every command, so it may hold all settings of the server.
	also := program.Variables(newServerCommand().FlagSet)
	if err := program.Resolve(fs, file, secrets, also, `"manager server --help"`); err != nil {
		return nil, err
	}
	return serving.ParseAccounts(accounts)
}
