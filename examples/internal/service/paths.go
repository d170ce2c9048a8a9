package service

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
)

// Service names a service of this machine.
type Service struct {
	// Program is the name of the program, such as delegate.
	Program string
	// Name is the name of the service, such as dlite-delegate.
	Name string
	// User selects the service manager of the current user, and not of the system.
	User bool
}

// DefaultName returns the name of the service of a program, unless the operator chooses another one.
func DefaultName(program string) string { return "dlite-" + program }

// validName is also valid for a user of Unix and a service of Windows.
var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}$`)

// Check checks the name.
func (s Service) Check() error {
	if !validName.MatchString(s.Name) {
		return fmt.Errorf("--name %q: it must begin with a letter from a to z, and contain at most 31 such letters, digits and dashes", s.Name)
	}
	return nil
}

// Paths are the files and folders of a service.
type Paths struct {
	// Binary is the installed program.
	Binary string
	// Settings is the file config.env.
	Settings string
	// State is the folder in which the program keeps its files.
	State string
	// Runtime is the folder of the socket. It may vanish when the service stops.
	Runtime string
	// Definition is the file that the service manager reads. It is empty on Windows.
	Definition string
}

// Socket returns the path at which Read reaches the running program.
func (p Paths) Socket() string { return filepath.Join(p.Runtime, socketName) }

const socketName = "status.sock"

// The variables by which the service manager names the folders to the program. systemd sets them itself.
const (
	StateVariable   = "STATE_DIRECTORY"
	RuntimeVariable = "RUNTIME_DIRECTORY"
)

// DefaultSocket returns the socket of the service that this process is, or "" if it is none.
func DefaultSocket() string {
	if dir := os.Getenv(RuntimeVariable); filepath.IsAbs(dir) {
		return filepath.Join(dir, socketName)
	}
	return ""
}

// StateDir returns the folder for the files of the service that this process is, or "" if it is none.
func StateDir() string {
	if dir := os.Getenv(StateVariable); filepath.IsAbs(dir) {
		return dir
	}
	return ""
}

// Paths returns the files and folders of a service on this system.
func (s Service) Paths() (Paths, error) {
	d := dirs{get: os.Getenv}
	if s.User {
		home, err := os.UserHomeDir()
		if err != nil {
			return Paths{}, fmt.Errorf("the home directory for a service of this user: %w", err)
		}
		d.home = home
	}
	return s.pathsOn(runtime.GOOS, d)
}

// dirs contains the directories from which the paths are made.
type dirs struct {
	home string
	get  func(string) string
}

// or returns the value of a variable, or else a folder below the home directory.
func (d dirs) or(variable string, below ...string) string {
	if v := d.get(variable); filepath.IsAbs(v) {
		return v
	}
	return filepath.Join(append([]string{d.home}, below...)...)
}

func (s Service) pathsOn(system string, d dirs) (Paths, error) {
	if err := s.Check(); err != nil {
		return Paths{}, err
	}
	switch system {
	case "linux":
		if !s.User {
			return Paths{
				Binary: "/usr/local/bin/" + s.Name, Settings: "/etc/" + s.Name + "/config.env", State: "/var/lib/" + s.Name,
				Runtime: "/run/" + s.Name, Definition: "/etc/systemd/system/" + s.Name + ".service",
			}, nil
		}
		run := d.get("XDG_RUNTIME_DIR")
		if !filepath.IsAbs(run) {
			run = fmt.Sprintf("/run/user/%d", os.Getuid())
		}
		config := d.or("XDG_CONFIG_HOME", ".config")
		return Paths{
			Binary:   filepath.Join(d.home, ".local", "bin", s.Name),
			Settings: filepath.Join(config, s.Name, "config.env"), State: filepath.Join(d.or("XDG_STATE_HOME", ".local", "state"), s.Name),
			Runtime: filepath.Join(run, s.Name), Definition: filepath.Join(config, "systemd", "user", s.Name+".service"),
		}, nil
	case "darwin":
		library, program, kind := "/Library", "/usr/local/bin/"+s.Name, "LaunchDaemons"
		if s.User {
			library, program, kind = d.home+"/Library", d.home+"/.local/bin/"+s.Name, "LaunchAgents"
		}
		files := library + "/Application Support/" + s.Name
		return Paths{
			Binary: program, Settings: files + "/config.env", State: files + "/state", Runtime: files + "/run",
			Definition: library + "/" + kind + "/" + s.Name + ".plist",
		}, nil
	case "windows":
		if s.User {
			return Paths{}, fmt.Errorf("--user: Windows has services of the system only: leave the flag out")
		}
		files := d.get("ProgramData") + `\` + s.Name
		return Paths{
			Binary:   d.get("ProgramFiles") + `\` + s.Name + `\` + s.Program + ".exe",
			Settings: files + `\config.env`, State: files + `\state`, Runtime: files + `\run`,
		}, nil
	}
	return Paths{}, fmt.Errorf("%s has no service manager that this program knows: run \"%s server\" under your own", system, s.Program)
}
