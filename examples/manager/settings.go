package main

import (
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/delegate-io/dlite/examples/internal/program"
)

// settingsFile is the flag --env-file of a command, and what the file holds.
type settingsFile struct {
	EnvFile envFile `name:"env-file" help:"File with settings, NAME=value a line. The environment and flags win over it." placeholder:"FILE"`
}

// accountsSetting has no flag: a command line shows secrets to every process.
const accountsSetting = "ACCOUNTS"

// accounts reads ACCOUNTS from the environment, or else from the file.
func (f *settingsFile) accounts() (map[string]string, error) {
	text, ok := os.LookupEnv(accountsSetting)
	if !ok {
		settings, err := program.ReadSettings(string(f.EnvFile))
		if err != nil {
			return nil, err
		}
		text = settings[accountsSetting]
	}
	return parseAccounts(text)
}

// envFile is the name of a file with settings.
type envFile string

// BeforeResolve makes the file's settings the values of flags that neither the
// command line nor the environment sets.
func (f envFile) BeforeResolve(k *kong.Kong, ctx *kong.Context, trace *kong.Path) error {
	file := string(ctx.FlagValue(trace.Flag).(envFile))
	settings, err := program.ReadSettings(file)
	if err != nil {
		return err
	}
	valid := []string{accountsSetting}
	for _, command := range k.Model.Leaves(false) {
		for _, group := range command.AllFlags(false) {
			for _, flag := range group {
				valid = append(valid, flag.Envs...)
			}
		}
	}
	same := func(name string) string { return name }
	if err := program.CheckNames(file, settings, valid, same, `"manager server --help"`); err != nil {
		return err
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Envs {
			if _, set := os.LookupEnv(name); set {
				return nil, nil
			}
			if v, set := settings[name]; set && strings.TrimSpace(v) != "" {
				return v, nil
			}
		}
		return nil, nil
	}))
	return nil
}
