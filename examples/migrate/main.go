// Command migrate rewrites code that imports github.com/harness/dlite, or its older path
// github.com/wings-software/dlite, for this module (docs/migrating.md):
//
//	migrate ./...        # prints the files that would change, and the places that need a decision
//	migrate -w ./...     # changes the files
//
// It changes imports, constructors, types, fields and calls. A place that it cannot rewrite gets a
// comment that begins with "MIGRATE:" and has advice. The program does not need the old module.
// It finds the types of variables by their declarations, so it knows only those that the code of the
// same directory declares.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	write := flags.Bool("w", false, "change the files")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no directory is named: name some, such as ./... for all below this one")
	}
	var dirs []string
	for _, arg := range flags.Args() {
		found, err := directories(arg)
		if err != nil {
			return err
		}
		dirs = append(dirs, found...)
	}
	changed, open := 0, 0
	var report strings.Builder
	for _, dir := range dirs {
		results, err := rewriteDirectory(dir)
		if err != nil {
			return err
		}
		for _, r := range results {
			changed++
			fmt.Fprintln(&report, r.name)
			for _, n := range r.notes {
				open++
				fmt.Fprintf(&report, "\tline %d: %s\n", n.line, n.text)
			}
			if *write {
				if err := os.WriteFile(r.name, r.text, r.mode); err != nil {
					return err
				}
			}
		}
	}
	fmt.Fprintf(&report, "%d files, %d places to decide on. Then run: go get %s@latest && go mod tidy\n", changed, open, newModule)
	_, err := io.WriteString(out, report.String())
	return err
}

// directories returns the directories of an argument: one, or with "/..." all below it.
func directories(arg string) ([]string, error) {
	root, all := strings.CutSuffix(arg, "...")
	root = filepath.Clean(root)
	if !all {
		return []string{root}, nil
	}
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root && (name == "vendor" || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return fs.SkipDir
		}
		dirs = append(dirs, path)
		return nil
	})
	slices.Sort(dirs)
	return dirs, err
}
