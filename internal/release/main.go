package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const usage = `usage: release <command> [flags]

  all      the files of a release, in a directory that a web server can serve
  build    executables
  sizes    the executables for linux/amd64 with their sizes; fails if one has grown
  images   the images as files that "docker load" reads
  overlay  the file overlay.json for "go build -overlay", with which a delegate has its small program inside

release <command> -h lists the flags.
`

// command is a command with its flags. run is called after the flags are parsed.
type command struct {
	name, root, programs, platforms, out string
	fs                                   *flag.FlagSet
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	commands := map[string]func(context.Context, *command, []string) error{
		"all": allCommand, "build": buildCommand, "sizes": sizesCommand, "images": imagesCommand, "overlay": overlayCommand,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := commands[os.Args[1]](ctx, newCommand(os.Args[1]), os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func newCommand(name string) *command {
	c := &command{name: name, fs: flag.NewFlagSet("release "+name, flag.ExitOnError)}
	c.fs.StringVar(&c.root, "root", ".", "directory of the repository")
	c.fs.StringVar(&c.programs, "programs", "", "comma-separated programs; empty is all")
	c.fs.StringVar(&c.platforms, "platforms", "", "comma-separated platforms such as linux/amd64; empty is all")
	c.fs.StringVar(&c.out, "out", "", "directory of the result")
	return c
}

// parse parses the flags and returns the selected platforms and programs.
func (c *command) parse(args []string) ([]program, []platform, error) {
	if err := c.fs.Parse(args); err != nil {
		return nil, nil, err
	}
	if c.fs.NArg() > 0 {
		return nil, nil, fmt.Errorf("unexpected argument %q", c.fs.Arg(0))
	}
	chosen, err := selectPrograms(c.programs)
	if err != nil {
		return nil, nil, err
	}
	on, err := selectPlatforms(c.platforms)
	if err == nil && c.out == "" && c.name != "build" {
		err = errors.New("-out is missing: name a directory")
	}
	return chosen, on, err
}

// withBuilder calls f with a builder of programs without a version.
func (c *command) withBuilder(ctx context.Context, f func(*builder) error) (err error) {
	scratch, err := os.MkdirTemp("", "dlite-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	b, err := newBuilder(ctx, source{root: c.root}, scratch)
	if err != nil {
		return err
	}
	return f(b)
}

func buildCommand(ctx context.Context, c *command, args []string) error {
	chosen, on, err := c.parse(args)
	if err != nil {
		return err
	}
	return c.withBuilder(ctx, func(b *builder) error {
		for _, p := range on {
			fmt.Println("build for", p)
			dir := c.out
			if dir != "" {
				dir = filepath.Join(dir, p.os+"_"+p.arch)
			}
			if err := b.build(ctx, chosen, p, dir); err != nil {
				return err
			}
		}
		return nil
	})
}

func sizesCommand(ctx context.Context, c *command, args []string) error {
	chosen, _, err := c.parse(args)
	if err != nil {
		return err
	}
	if err := c.withBuilder(ctx, func(b *builder) error { return b.build(ctx, chosen, platform{"linux", "amd64"}, c.out) }); err != nil {
		return err
	}
	var grown []string
	for _, p := range chosen {
		info, err := os.Stat(filepath.Join(c.out, p.name))
		if err != nil {
			return err
		}
		fmt.Printf("%-9s %4.1f MB, at most %d MB\n", p.name, float64(info.Size())/1e6, p.megabytes)
		if info.Size() > int64(p.megabytes)*1e6 {
			grown = append(grown, p.name)
		}
	}
	if len(grown) > 0 {
		return fmt.Errorf("too large: %s: find the new dependency, or raise the limit in internal/release/programs.go with a reason", strings.Join(grown, ", "))
	}
	return nil
}

func imagesCommand(ctx context.Context, c *command, args []string) error {
	tag := c.fs.String("tag", "", "tag of the images")
	chosen, on, err := c.parse(args)
	if err != nil {
		return err
	}
	if *tag == "" {
		return errors.New("-tag is missing: name a tag such as 0.1.0")
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	return c.withBuilder(ctx, func(b *builder) error {
		// A fixed date: without a commit there is no better one.
		r := &release{source: source{root: b.root, version: *tag, date: time.Unix(0, 0).UTC()}, programs: chosen}
		for _, p := range on {
			if p.os != "linux" {
				continue
			}
			built := filepath.Join(b.scratch, p.os+"_"+p.arch)
			if err := b.build(ctx, withImage(chosen), p, built); err != nil {
				return err
			}
			if err := r.writeImages(c.out, built, p); err != nil {
				return err
			}
		}
		return nil
	})
}

func overlayCommand(ctx context.Context, c *command, args []string) error {
	if _, _, err := c.parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	b, err := newBuilder(ctx, source{root: c.root}, c.out)
	if err != nil {
		return err
	}
	file, err := b.overlay(ctx, platform{"linux", runtime.GOARCH})
	if err != nil {
		return err
	}
	return os.Rename(file, filepath.Join(c.out, "overlay.json"))
}
