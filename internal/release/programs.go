package main

import (
	"fmt"
	"slices"
	"strings"
)

// program is a bundled program: a directory in examples and an executable with the same name.
type program struct {
	name string
	// about is one line for packages, images and the formula.
	about string
	// more follows it in the description of a package.
	more string
	// megabytes is the maximum size of the executable for linux/amd64, in 1,000,000 bytes.
	megabytes int
	// service is true for a program that runs for ever: "<program> server --env-file FILE".
	service bool
}

const (
	license = "Apache-2.0"
	// The address is for the maintainer field that packages must have. Mail is not read there.
	maintainer = "The dlite maintainers <maintainers@dlite.invalid>"
	homepage   = "https://github.com/delegate-io/dlite"
)

var programs = []program{
	{name: "delegate", about: "Agent that runs CI stages inside a network, for a manager", more: "It takes tasks from a manager, and runs the steps of stages on the host,\nin containers, virtual machines and pods.", megabytes: 42, service: true},
	{name: "manager", about: "Manager of delegates: queue, logs, pipelines and a page", more: "It queues the stages and tasks that delegates run,\nkeeps their logs, and runs pipelines on triggers and schedules.", megabytes: 50, service: true},
	{name: "dlite", about: "Command line of the dlite manager", more: "It starts runs of pipelines and single stages,\nfollows their logs, and operates the queue.", megabytes: 40},
	{name: "pipelines", about: "Runs CI pipelines on one machine", more: "It checks and explains pipelines, and runs them without a server.", megabytes: 35},
	{name: "agent", about: "Agent of the delegate inside virtual machines and pods", more: "It carries out the steps of a stage, and is copied into each machine and pod.", megabytes: 14},
}

// platform is an operating system and an architecture, in the words of Go.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// executable returns the name of the executable of a program.
func (p platform) executable(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// selectPrograms returns the programs with these comma-separated names, or all.
func selectPrograms(names string) ([]program, error) {
	if names == "" {
		return programs, nil
	}
	var chosen []program
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("program %q is unknown: the programs are delegate, manager, dlite, pipelines, agent", name)
		}
		chosen = append(chosen, programs[i])
	}
	return chosen, nil
}

// selectPlatforms returns the platforms with these comma-separated names, or all.
func selectPlatforms(names string) ([]platform, error) {
	if names == "" {
		return platforms, nil
	}
	var chosen []platform
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(platforms, func(p platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("platform %q is unknown: the platforms are %v", name, platforms)
		}
		chosen = append(chosen, platforms[i])
	}
	return chosen, nil
}
