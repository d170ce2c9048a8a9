package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"golang.org/x/term"

	"github.com/delegate-io/dlite/manager/api"
)

// settings is the file with the contexts.
type settings struct {
	Current  string              `yaml:"current,omitempty"`
	Contexts map[string]*manager `yaml:"contexts,omitempty"`
}

// manager is a manager and an account of it.
type manager struct {
	URL     string `yaml:"url"`
	Account string `yaml:"account"`
	// Token is the token, unless it is in the keyring of the system.
	Token   string `yaml:"token,omitempty"`
	Keyring bool   `yaml:"keyring,omitempty"`
}

// settingsFile returns DLITE_CONFIG, or dlite/config.yaml in the user's folder for settings.
func settingsFile() (string, error) {
	if file := os.Getenv("DLITE_CONFIG"); file != "" {
		return file, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for settings (%w): set DLITE_CONFIG to a file", err)
	}
	return filepath.Join(dir, "dlite", "config.yaml"), nil
}

// loadSettings reads the contexts. Without a file there are none.
func loadSettings() (*settings, error) {
	s := &settings{Contexts: map[string]*manager{}}
	file, err := settingsFile()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, usage("reading the contexts: %v: set DLITE_CONFIG to a file that you may read", err)
	}
	if err := yaml.UnmarshalWithOptions(text, s, yaml.DisallowUnknownField()); err != nil {
		return nil, usage("reading the contexts in %s: correct the file, or remove it and run dlite login: %s", file, yaml.FormatError(err, false, false))
	}
	for name, m := range s.Contexts {
		if m == nil {
			return nil, usage("the context %q in %s is empty: give it a url and an account, or remove it", name, file)
		}
	}
	if info, err := os.Stat(file); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 && s.hasTokens() {
		return nil, &codeError{fmt.Sprintf("%s has tokens, and other users may read it: run chmod 600 %s", file, file), exitToken}
	}
	if s.Contexts == nil {
		s.Contexts = map[string]*manager{}
	}
	return s, nil
}

func (s *settings) hasTokens() bool {
	for _, m := range s.Contexts {
		if m.Token != "" {
			return true
		}
	}
	return false
}

func (s *settings) save() error {
	file, err := settingsFile()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return usage("storing the contexts: %v: set DLITE_CONFIG to a file that you may write", err)
	}
	part, err := os.CreateTemp(filepath.Dir(file), "config-*") // it has the mode 0600
	if err != nil {
		return usage("storing the contexts: %v: set DLITE_CONFIG to a file that you may write", err)
	}
	_, err = part.Write(text)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		_ = os.Remove(part.Name()) // it may have a token
		return usage("storing the contexts: %v: set DLITE_CONFIG to a file that you may write", err)
	}
	return nil
}

// names are the names of the contexts in their order.
func (s *settings) names() []string { return slices.Sorted(maps.Keys(s.Contexts)) }

// token returns the token of a context.
func (m *manager) token(name string) (string, error) {
	if !m.Keyring {
		return m.Token, nil
	}
	token, err := keyringGet(name)
	if err != nil {
		return "", &codeError{fmt.Sprintf("the keyring does not give the token of the context %s (%v): run dlite login %s --account %s, or set DLITE_TOKEN", name, err, m.URL, m.Account), exitToken}
	}
	return token, nil
}

// selected returns the manager of the environment or of the context.
func (p *program) selected() (name string, m *manager, token string, err error) {
	s, err := loadSettings()
	if err != nil {
		return "", nil, "", err
	}
	if name = p.cli.Context; name == "" {
		name = s.Current
	}
	m = &manager{}
	if known := s.Contexts[name]; known != nil {
		*m = *known
	} else if p.cli.Context != "" {
		return "", nil, "", usage("there is no context %q: there are %s", name, orNone(s.names(), "run dlite login"))
	}
	token = os.Getenv("DLITE_TOKEN")
	for variable, into := range map[string]*string{"DLITE_URL": &m.URL, "DLITE_ACCOUNT": &m.Account} {
		if value := os.Getenv(variable); value != "" && value != *into {
			if *into != "" && token == "" { // the token of the context must not go to another manager
				return "", nil, "", &codeError{"DLITE_URL or DLITE_ACCOUNT differs from the context: set DLITE_TOKEN too", exitToken}
			}
			*into = value
		}
	}
	switch {
	case m.URL == "":
		return "", nil, "", &codeError{"no manager is known: run dlite login URL --account ACCOUNT, or set DLITE_URL, DLITE_ACCOUNT and DLITE_TOKEN", exitToken}
	case token == "":
		token, err = m.token(name)
	}
	if err == nil && token == "" {
		err = &codeError{"there is no token: run dlite login, or set DLITE_TOKEN", exitToken}
	}
	return name, m, token, err
}

// client returns a client of the selected manager.
func (p *program) client() (*api.Client, error) {
	_, m, token, err := p.selected()
	if err != nil {
		return nil, err
	}
	return p.connect(m, token)
}

func (p *program) connect(m *manager, token string) (*api.Client, error) {
	sender := &http.Client{Transport: &progress{p: p, next: http.DefaultTransport}}
	c, err := api.New(api.Config{URL: m.URL, Account: m.Account, Token: token, HTTP: sender, UserAgent: "dlite", RetryFor: 5 * time.Second})
	if err != nil {
		return nil, usage("%v", err)
	}
	return c, nil
}

// orNone returns names, or what to do if there are none.
func orNone(names []string, hint string) string {
	if len(names) == 0 {
		return "none: " + hint
	}
	return strings.Join(names, ", ")
}

type loginCommand struct {
	URL     string `arg:"" help:"Address of the manager."`
	Account string `required:"" help:"Id of the account."`
	Name    string `help:"Name of the context; the default is the account and the host."`
	Store   string `enum:"auto,file,keyring" default:"auto" help:"Where the token is kept: file, keyring, or auto for the keyring if the system has one."`
}

// Help is the text below the flags.
func (*loginCommand) Help() string {
	return `The token comes from DLITE_TOKEN, or from the standard input. A terminal does not show it. "manager token ACCOUNT" makes one.
The context becomes the current one. The file has the mode 0600.

Examples:
  $ manager token demo | dlite login http://127.0.0.1:3460 --account demo --store file`
}

// Run stores a context.
func (c *loginCommand) Run(p *program) error {
	token, err := p.readToken()
	if err != nil {
		return err
	}
	m := &manager{URL: strings.TrimRight(c.URL, "/"), Account: c.Account}
	client, err := p.connect(m, token)
	if err != nil {
		return err
	}
	if _, err := client.Limits(p.ctx); err != nil {
		return err
	}
	s, err := loadSettings()
	if err != nil {
		return err
	}
	name := c.Name
	if name == "" {
		_, host, _ := strings.Cut(m.URL, "://")
		name = m.Account + "@" + host
	}
	if err := c.store(p, m, name, token); err != nil {
		return err
	}
	previous := s.Contexts[name]
	s.Contexts[name], s.Current = m, name
	if err := s.save(); err != nil {
		return err
	}
	if previous != nil && previous.Keyring && !m.Keyring { // otherwise the old token would stay in the keyring
		if err := keyringDelete(name); err != nil {
			p.note("! the previous token is still in the keyring (%v): remove it there, under the name dlite", err)
		}
	}
	p.note("logged in: %s is the current context. Try \"dlite ls\" or \"dlite queue\".", name)
	return nil
}

// store puts the token into the keyring, or into the context, which goes to the file.
func (c *loginCommand) store(p *program, m *manager, name, token string) error {
	if c.Store == "file" {
		m.Token = token
		return nil
	}
	err := keyringSet(name, token)
	switch {
	case err == nil:
		m.Keyring = true
		return nil
	case c.Store == "keyring":
		return &codeError{fmt.Sprintf("the keyring of the system does not take the token (%v): unlock it, or use --store file", err), exitToken}
	}
	file, missing := settingsFile()
	if missing != nil {
		return missing
	}
	m.Token = token
	p.note("! there is no keyring for the token (%v): it is in %s, which only you may read", err, file)
	return nil
}

// readToken returns DLITE_TOKEN, or a line of the standard input.
func (p *program) readToken() (string, error) {
	token := os.Getenv("DLITE_TOKEN")
	if token == "" {
		var err error
		if term.IsTerminal(int(p.in.Fd())) {
			_, _ = fmt.Fprint(p.err, "Token: ")
			var text []byte
			text, err = term.ReadPassword(int(p.in.Fd()))
			token = string(text)
			_, _ = fmt.Fprintln(p.err)
		} else {
			token, err = bufio.NewReader(p.in).ReadString('\n')
			if errors.Is(err, io.EOF) {
				err = nil // the last line may have no newline
			}
		}
		if err != nil {
			return "", &codeError{fmt.Sprintf("reading the token: %v: give it on the standard input, or set DLITE_TOKEN", err), exitToken}
		}
	}
	if token = strings.TrimSpace(token); token == "" {
		return "", &codeError{"there is no token: give it on the standard input, or set DLITE_TOKEN", exitToken}
	}
	return token, nil
}

type tokensCommand struct {
	Remove string `placeholder:"NAME" help:"Remove a context with its token."`
}

// Help is the text below the flags.
func (*tokensCommand) Help() string {
	return `Managers do not keep a list of tokens: "manager token ACCOUNT" makes one, with --for and --role, on the manager's machine.

Examples:
  $ dlite tokens`
}

type tokenState struct {
	Context string `json:"context" yaml:"context"`
	URL     string `json:"url" yaml:"url"`
	Account string `json:"account" yaml:"account"`
	Stored  string `json:"stored" yaml:"stored"`
	State   string `json:"state" yaml:"state"`
	Current bool   `json:"current" yaml:"current"`
}

// Run lists the contexts.
func (c *tokensCommand) Run(p *program) error {
	s, err := loadSettings()
	if err != nil {
		return err
	}
	if c.Remove != "" {
		m := s.Contexts[c.Remove]
		if m == nil {
			return usage("there is no context %q: there are %s", c.Remove, orNone(s.names(), "run dlite login"))
		}
		if m.Keyring {
			if err := keyringDelete(c.Remove); err != nil {
				return &codeError{fmt.Sprintf("the keyring does not remove the token (%v): unlock it and repeat the command", err), exitToken}
			}
		}
		delete(s.Contexts, c.Remove)
		if s.Current == c.Remove {
			s.Current = ""
		}
		return s.save()
	}
	states := []tokenState{}
	for _, name := range s.names() {
		states = append(states, p.tokenState(name, s))
	}
	t := table{header: []string{"", "CONTEXT", "URL", "ACCOUNT", "STORED", "STATE"}}
	for _, st := range states {
		mark := ""
		if st.Current {
			mark = "*"
		}
		t.add(st.Context, mark, st.Context, st.URL, st.Account, st.Stored, st.State)
	}
	t.empty = "no context: run dlite login URL --account ACCOUNT"
	return p.print(states, t)
}

func (p *program) tokenState(name string, s *settings) tokenState {
	m := s.Contexts[name]
	st := tokenState{Context: name, URL: m.URL, Account: m.Account, Stored: "file", State: "valid", Current: name == s.Current}
	if m.Keyring {
		st.Stored = "keyring"
	}
	token, err := m.token(name)
	if err == nil {
		var client *api.Client
		if client, err = api.New(api.Config{URL: m.URL, Account: m.Account, Token: token, UserAgent: "dlite", RetryFor: -1}); err == nil {
			_, err = client.Limits(p.ctx)
		}
	}
	if err != nil {
		st.State = err.Error()
	}
	return st
}
