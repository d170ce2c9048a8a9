package endtoend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// heldSecret is the secret of the stage that hostile steps of the same delegate try to read.
const heldSecret = "visibly-fake-held-secret"

// stepAttack is a try of a step. reached reports that it succeeded.
type stepAttack struct {
	name    string
	reached bool
}

// stepScripts exit with 7 if they reach anything of another transaction or of the delegate. They get the secret
// in two halves, A and B, so that masking does not hide a success, the delegate's directories and the step's own
// process id.
var stepScripts = map[string]string{
	"memory folder":           `grep -rqs "$A$B" /dev/shm && exit 7; true`,
	"other work folders":      `grep -rqs "$A$B" "$WORK" && exit 7; true`,
	"list another's work":     `for d in "$WORK"/*/; do case "$PWD/" in "$d"*) ;; *) ls "$d" >/dev/null 2>&1 && exit 7;; esac; done; true`,
	"the delegate's ledger":   `ls "$LEDGER" 2>/dev/null | grep -q . && exit 7; true`,
	"the delegate's settings": `grep -qs TOKEN "$CONFIG" && exit 7; true`,
	"environments":            `for p in /proc/[0-9]*; do tr '\0' '\n' <$p/environ 2>/dev/null | grep -q "^HELD=" && exit 7; done; true`,
	"memory of processes":     `for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = delegate ] && head -c 1 $p/mem >/dev/null 2>&1 && exit 7; done; true`,
	"open files":              `for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = delegate ] && ls $p/fd 2>/dev/null | grep -q . && exit 7; done; true`,
	"root of another":         `for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = delegate ] && ls $p/root/"$LEDGER" 2>/dev/null | grep -q . && exit 7; done; true`,
	"signal the delegate":     `for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = delegate ] && kill -0 ${p#/proc/} 2>/dev/null && exit 7; done; true`,
	"signal another's step":   `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q "[!] -e go" && kill -0 ${p#/proc/} 2>/dev/null && exit 7; done; true`,
	"write another's work":    `for d in "$WORK"/*/; do case "$PWD/" in "$d"*) ;; *) touch "$d/x" 2>/dev/null && exit 7;; esac; done; true`,
}

// stepAttacks runs the scripts on the victim's delegate, beside the stage that is held.
func (a *arena) stepAttacks() []stepAttack {
	var steps []string
	var names []string
	half := len(heldSecret) / 2
	for name, script := range stepScripts {
		data, err := json.Marshal(map[string]any{
			"run": map[string]any{"entrypoint": []string{"sh", "-c"}, "commands": []string{script}},
			"environment": map[string]string{
				"A": heldSecret[:half], "B": heldSecret[half:], "WORK": a.dir + "/work-victim", "LEDGER": a.dir + "/ledger-victim", "CONFIG": a.dir + "/victim.env",
			},
		})
		require.NoError(a.t, err)
		steps = append(steps, fmt.Sprintf(`{"id":"s%d","run_on":"always","data":%s}`, len(steps), data))
		names = append(names, name)
	}
	status, body := a.do(preyAccount, http.MethodPost, "/api/stages?accountId=victim", `{"id":"hostile-steps","steps":[`+strings.Join(steps, ",")+`]}`)
	require.Equal(a.t, http.StatusAccepted, status, body)
	_, body = a.do(preyAccount, http.MethodGet, "/api/stages/hostile-steps?accountId=victim&wait=60", "")
	var st api.Stage
	require.NoError(a.t, json.Unmarshal([]byte(body), &st))
	require.True(a.t, st.Status.Ended(), body)
	var all []stepAttack
	for i, s := range st.Steps {
		all = append(all, stepAttack{names[i], s.Status != api.Success})
	}
	return all
}
