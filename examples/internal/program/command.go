package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// Run parses the arguments of the process, runs the command that they name, and ends
// the process with its exit code: 0 for success, 2 for wrong arguments, what the error's
// ExitCode method returns, or 1. "version" and "--version" print the version.
//
// The programs use ffcli and not a parser that calls methods by name: with such a parser
// the linker keeps every exported method of every type, a third of a program's size.
func Run(ctx context.Context, name, about string, commands ...*ffcli.Command) {
	root := flag.NewFlagSet(name, flag.ContinueOnError)
	version := root.Bool("version", false, "print the version")
	commands = append(commands, &ffcli.Command{
		Name: "version", ShortUsage: name + " version", ShortHelp: "print the version",
		Exec: func(context.Context, []string) error {
			fmt.Println(Describe(name))
			return nil
		},
	})
	for _, c := range commands {
		if c.FlagSet == nil {
			c.FlagSet = flag.NewFlagSet(c.Name, flag.ContinueOnError)
		}
	}
	command := &ffcli.Command{
		ShortUsage: name + " <command> [flags]", LongHelp: about, FlagSet: root, Subcommands: commands,
		Exec: func(_ context.Context, args []string) error {
			switch {
			case *version:
				fmt.Println(Describe(name))
				return nil
			case len(args) == 0:
				return usageError("which command? " + name + " --help lists them")
			}
			text := fmt.Sprintf("unknown command %q: ", args[0])
			var names []string
			for _, c := range commands {
				names = append(names, c.Name)
			}
			if near := Nearest(args[0], names); near != "" {
				return usageError(text + "did you mean " + near + "?")
			}
			return usageError(text + "the commands are " + strings.Join(names, ", "))
		},
	}
	if slices.ContainsFunc(os.Args[1:], func(a string) bool { return a == "-h" || a == "-help" || a == "--help" }) {
		// Requested help is output, and not an error.
		for _, c := range append(commands, command) {
			c.FlagSet.SetOutput(os.Stdout)
		}
	}
	err := command.Parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		os.Exit(2) // the flag package has printed the error
	}
	if err = command.Run(ctx); err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
	if coded := (interface{ ExitCode() int })(nil); errors.As(err, &coded) {
		os.Exit(coded.ExitCode())
	}
	os.Exit(1)
}

// usageError is the error of wrong arguments.
type usageError string

func (e usageError) Error() string { return string(e) }

// ExitCode returns the exit code of wrong arguments.
func (usageError) ExitCode() int { return 2 }

// Arguments returns the arguments of a command that takes the named ones. Flags may
// follow them as well as precede them.
func Arguments(fs *flag.FlagSet, args []string, names ...string) ([]string, error) {
	var values []string
	for len(args) > 0 {
		values = append(values, args[0])
		if err := fs.Parse(args[1:]); err != nil {
			return nil, usageError(err.Error())
		}
		args = fs.Args()
	}
	switch {
	case len(values) < len(names):
		return nil, usageError("the argument <" + names[len(values)] + "> is missing")
	case len(values) > len(names):
		return nil, usageError("unexpected argument " + values[len(names)])
	}
	return values, nil
}

// Resolve sets the flags that the command line leaves unset from the environment, or else from
// a settings file. The variable of a flag is its name in upper case with underscores. others
// are settings without a flag, such as secrets, which every process could see on a command
// line. A name in the file that is in none of these and not in also is an error. The error
// suggests the command list, which prints all settings.
func Resolve(fs *flag.FlagSet, file string, others map[string]*string, also []string, list string) error {
	settings, err := ReadSettings(file)
	if err != nil {
		return err
	}
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	value := func(name string) string {
		if v, ok := os.LookupEnv(name); ok {
			return v
		}
		return settings[name]
	}
	valid := slices.Concat(also, Variables(fs))
	var errs []error
	fs.VisitAll(func(f *flag.Flag) {
		name := variable(f)
		if v := value(name); f.Name != EnvFileFlag && !set[f.Name] && strings.TrimSpace(v) != "" {
			if err := fs.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	for name, target := range others {
		valid = append(valid, name)
		*target = value(name)
	}
	same := func(name string) string { return name }
	return errors.Join(append(errs, CheckNames(file, settings, valid, same, list))...)
}

// Variables returns the names of the variables of the flags.
func Variables(fs *flag.FlagSet) (names []string) {
	fs.VisitAll(func(f *flag.Flag) {
		if f.Name != EnvFileFlag {
			names = append(names, variable(f))
		}
	})
	return names
}

func variable(f *flag.Flag) string { return strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")) }

// EnvFileFlag is the flag that names the file of settings.
const EnvFileFlag = "env-file"
