package daemonset

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/task"
)

// The config of a manager is refused without its values, or is read in one form: spaces, and a second reading of the members
// that define the program, change nothing. Otherwise a daemon would be started anew without a reason.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"cpu":0.5,"envs":["A=visibly-fake-value"],"executable_config":{"name":"x","executables":[]},"memory_bytes":1048576,"settings":{"b":1,"a":1e400}}`))
	f.Add([]byte(`{"image":"alpine:3","args":["a","b"],"pull":"always","auth":{"address":"r.example","username":"u","password":"visibly-fake-password"}}`))
	f.Add([]byte(`{"memory_bytes":1.5,"envs":"visibly-fake"}`))
	f.Add([]byte(`{"cpu":1e999}`))
	f.Add([]byte(`{"repository":null,"settings":null,"executable_config":{"a":"\u2028<\ud800"}}`))
	f.Add([]byte(`{"CPU":1,"cpu":2,"Envs":[null]}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := newDesired(task.DaemonSet{ID: "a", Type: "t", Config: text})
		if (d.err == nil) != (d.config != nil) {
			t.Fatal("neither a config nor an error, or both")
		}
		if d.err != nil {
			if message := d.err.Error(); len(message) > 200 || strings.ContainsFunc(message, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
				t.Errorf("%q", message)
			}
			return
		}
		if c := d.config; c.CPU < 0 || c.MemoryBytes < 0 || len(c.Envs) > maxEnvs {
			t.Errorf("%+v", c)
		}
		if len(text) == 0 {
			return
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, text, "", "  "); err != nil {
			t.Fatalf("it was read, but is not JSON: %v", err)
		}
		if spaced.Len() <= maxConfig {
			if again := newDesired(task.DaemonSet{Config: spaced.Bytes()}); again.err != nil || again.program != d.program || again.settings != d.settings {
				t.Errorf("with spaces: %v\n%s %s\n%s %s", again.err, again.program, again.settings, d.program, d.settings)
			}
		}
		program := d.config.program()
		again, err := readConfig(json.RawMessage(program))
		if err != nil && len(program) <= maxConfig || err == nil && again.program() != program {
			t.Errorf("%v: %s", err, program)
		}
	})
}
