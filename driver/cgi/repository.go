package cgi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/goccy/go-yaml"

	"github.com/delegate-io/dlite/internal/artifact"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Names in a cached repository.
const (
	sourceDir    = "source"
	temporaryDir = "tmp"      // exists during a build
	binary       = "task.exe" // on every platform
	taskFile     = "task.yml"
)

// taskSpec is the task.yml of a repository.
type taskSpec struct {
	Task struct {
		Deps deps `yaml:"deps"`
		Run  struct {
			Go *struct {
				Module string `yaml:"module"`
			} `yaml:"go"`
			Bash *struct {
				Script string `yaml:"script"`
			} `yaml:"bash"`
		} `yaml:"run"`
	} `yaml:"task"`
}

// built returns the program of a repository. It fetches and builds the repository if the
// cache does not have it.
func (h *Handler) built(ctx context.Context, r *repository, log *taskLog, set *secrets.Set) (*program, error) {
	var key string
	var fetch func(dir string) error
	switch {
	case r.Download != "":
		if err := artifact.CheckURL(r.Download); err != nil {
			return nil, task.BadRequest(fmt.Errorf("repository: %w", err))
		}
		key = artifact.Key("archive", r.Download, r.Ref, r.SHA)
		fetch = func(dir string) error { return h.fetchArchive(ctx, r.Download, dir, log) }
	default:
		g, err := h.newGit(r, log, set)
		if err != nil {
			return nil, err
		}
		defer g.close()
		if err := g.resolve(ctx); err != nil {
			return nil, fmt.Errorf("repository: %w", err)
		}
		key = artifact.Key("git", g.from.URL, g.commit)
		fetch = func(dir string) error { return g.checkout(ctx, dir) }
	}
	held, err := h.cache.Dir(ctx, key, func(dir string) error {
		source := filepath.Join(dir, sourceDir)
		if err := os.Mkdir(source, 0o700); err != nil {
			return err
		}
		if err := fetch(source); err != nil {
			return err
		}
		return h.build(ctx, dir, log)
	})
	if err != nil {
		return nil, fmt.Errorf("repository: %w", err)
	}
	p, err := find(held.Path)
	if err != nil {
		held.Release()
		return nil, err
	}
	p.held = held
	return p, nil
}

// readSpec reads the task.yml of a cached repository.
func readSpec(dir string) (*taskSpec, error) {
	root, err := os.OpenRoot(filepath.Join(dir, sourceDir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.Open(taskFile)
	if err != nil {
		return nil, fmt.Errorf("it has no %s: %w", taskFile, err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	spec := &taskSpec{}
	if err := yaml.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("%s: %s", taskFile, yaml.FormatError(err, false, false))
	}
	run := spec.Task.Run
	switch {
	case run.Go != nil && run.Go.Module != "":
		return spec, nil
	case run.Bash != nil && filepath.IsLocal(filepath.FromSlash(run.Bash.Script)):
		info, err := root.Stat(filepath.FromSlash(run.Bash.Script))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", taskFile, err)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: the script is not a file", taskFile)
		}
		return spec, nil
	}
	return nil, fmt.Errorf("%s has neither a Go module nor a script to run", taskFile)
}

// build installs the dependencies of a repository and compiles its Go module, if any.
func (h *Handler) build(ctx context.Context, dir string, log *taskLog) error {
	spec, err := readSpec(dir)
	if err != nil {
		return err
	}
	if err := h.install(ctx, spec.Task.Deps, log); err != nil {
		return err
	}
	if spec.Task.Run.Go == nil || spec.Task.Run.Go.Module == "" {
		return nil
	}
	compiler, err := exec.LookPath("go")
	if err != nil {
		return errors.New("it is a Go module, and go is not in the PATH of the delegate")
	}
	module := spec.Task.Run.Go.Module
	log.say("Building %s", module)
	// A compiler that is killed does not remove its files.
	temporary := filepath.Join(dir, temporaryDir)
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	cmd := &exec.Cmd{
		Path: compiler, Dir: filepath.Join(dir, sourceDir),
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, binary), "--", module},
		Env:  append(h.buildEnvironment(), "GOTMPDIR="+temporary, "TMPDIR="+temporary, "TMP="+temporary),
	}
	state, err := h.exec(ctx, cmd, nil, log, log)
	if err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	if code := process.Code(state); code != 0 {
		return withLastLine(fmt.Errorf("go build: exit code %d", code), log.last)
	}
	// The compiler may have failed to write the file.
	if _, err := os.Stat(filepath.Join(dir, binary)); err != nil {
		return fmt.Errorf("go build: %s is not a program: %w", module, err)
	}
	return nil
}

// buildInherited are the variables of the delegate that a build gets in addition to the
// basic ones: the access to modules, and their directories.
var buildInherited = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND",
	"GOPROXY", "GOPRIVATE", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOINSECURE", "GOTOOLCHAIN",
	"GOPATH", "GOMODCACHE", "GOCACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
}

func (h *Handler) buildEnvironment() []string {
	env := process.Environment()
	for _, name := range buildInherited {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	if env["HOME"] == "" && runtime.GOOS != "windows" { // a service; go then has no default directories
		for name, dir := range map[string]string{"GOPATH": "go", "GOCACHE": "go-build"} {
			if env[name] == "" {
				env[name] = filepath.Join(h.cfg.Cache, dir)
			}
		}
	}
	env["GIT_TERMINAL_PROMPT"] = "0"
	return process.List(env)
}

// find returns the program of a cached repository.
func find(dir string) (*program, error) {
	spec, err := readSpec(dir)
	if err != nil {
		return nil, fmt.Errorf("repository: %w", err)
	}
	p := &program{dir: filepath.Join(dir, sourceDir)}
	if run := spec.Task.Run; run.Go != nil && run.Go.Module != "" {
		p.file = filepath.Join(dir, binary)
		return p, nil
	}
	p.file = filepath.Join(p.dir, filepath.FromSlash(spec.Task.Run.Bash.Script))
	info, err := os.Stat(p.file)
	if err != nil {
		return nil, fmt.Errorf("repository: %w", err)
	}
	if runtime.GOOS == "windows" || info.Mode()&0o111 == 0 {
		if p.interpreter, err = exec.LookPath("bash"); err != nil {
			return nil, errors.New("repository: its script needs bash, which is not in the PATH of the delegate")
		}
	}
	return p, nil
}

// fetchArchive downloads an archive and extracts it.
func (h *Handler) fetchArchive(ctx context.Context, url, dir string, log *taskLog) error {
	file := dir + ".archive"
	if err := h.cache.Download(ctx, &stage.Executable{URL: url}, file, log.say); err != nil {
		return err
	}
	if err := unpack(file, dir); err != nil {
		return fmt.Errorf("unpack %s: %w", artifact.ShortURL(url), err)
	}
	return os.Remove(file)
}
