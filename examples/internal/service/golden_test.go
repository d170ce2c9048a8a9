package service

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the files in testdata")

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}

var someDirs = dirs{home: "/home/jo", get: func(name string) string {
	return map[string]string{
		"XDG_RUNTIME_DIR": "/run/user/1000", "ProgramData": `C:\ProgramData`, "ProgramFiles": `C:\Program Files`,
	}[name]
}}

func pathsOn(t *testing.T, system string, s Service) Paths {
	t.Helper()
	at, err := s.pathsOn(system, someDirs)
	require.NoError(t, err)
	return at
}

// Rule G4: the units of systemd.
func TestUnits(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]unit{
		"own.service": {Account: "dlite-delegate", Rights: Own, Record: record{
			Rights: Own, Account: "dlite-delegate", Copied: "/usr/local/bin/dlite-delegate",
		}},
		"docker.service":  {Account: "dlite-delegate", Rights: Docker, Record: record{Rights: Docker}},
		"root.service":    {Rights: Root, Record: record{Rights: Root}},
		"user.service":    {Service: Service{User: true}, Rights: Own, Record: record{Rights: Own}},
		"manager.service": {Service: Service{Program: "manager"}, Account: "dlite-manager", Rights: Own, Ports: true, Record: record{Rights: Own}},
	} {
		if u.Program == "" {
			u.Program = "delegate"
		}
		u.Name, u.About, u.Watchdog = DefaultName(u.Program), "dlite "+u.Program, 2*time.Minute
		u.At = pathsOn(t, "linux", u.Service)
		u.Binary = u.At.Binary
		golden(t, name, u.text())

		file := filepath.Join(t.TempDir(), "unit")
		require.NoError(t, os.WriteFile(file, []byte(u.text()), 0o600))
		r, found := readRecord(file)
		assert.True(t, found)
		assert.Equal(t, u.Record, r, name)
	}
}

// A name from the operator cannot add a line to a unit or leave a folder.
func TestNamesOfServicesAreChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "Upper", "1st", "a/b", "../a", "a b", "a\nExecStart=x", "a.b", "abcdefghijklmnopqrstuvwxyzabcdef"} {
		require.ErrorContains(t, Service{Program: "delegate", Name: bad}.Check(), "--name", bad)
	}
	assert.NoError(t, Service{Program: "delegate", Name: "dlite-delegate-2"}.Check())
}

// Rule G4: the property lists of launchd. No test has run them on macOS.
func TestPropertyLists(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]plist{
		"system.plist": {Service: Service{Program: "delegate", Name: "dlite-delegate"}, Account: "jo"},
		"user.plist":   {Service: Service{Program: "delegate", Name: "dlite-delegate", User: true}},
	} {
		p.At = pathsOn(t, "darwin", p.Service)
		p.Binary = p.At.Binary
		golden(t, name, p.text())
	}
	assert.Contains(t, plist{Binary: "/a&b <c>"}.text(), "<string>/a&amp;b &lt;c&gt;</string>")
}

// Rule G4: the registration with the service manager of Windows. No test has run it on Windows.
func TestTheServiceOfWindows(t *testing.T) {
	t.Parallel()
	s := Service{Program: "delegate", Name: "dlite-delegate"}
	at := pathsOn(t, "windows", s)
	text, err := json.MarshalIndent(s.onWindows(at, "dlite delegate", at.Binary, Own), "", "  ")
	require.NoError(t, err)
	golden(t, "windows.json", string(text)+"\n")
	assert.Empty(t, s.onWindows(at, "dlite delegate", at.Binary, Root).UserName)

	s.User = true
	_, err = s.pathsOn("windows", someDirs)
	require.ErrorContains(t, err, "--user")
	_, err = s.pathsOn("plan9", someDirs)
	require.ErrorContains(t, err, "delegate server")
}
