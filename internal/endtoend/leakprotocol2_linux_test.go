package endtoend_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// second starts a delegate with protocol v2, and a manager that sends secret tasks.
func (s *site) second(t *testing.T) *clienttest.Server {
	t.Helper()
	server := clienttest.Config{Account: "leaky", Secret: s.secret}.NewServer()
	t.Cleanup(server.Close)
	begin(t, s.delegate(t, "v2", server.URL, "PROTOCOL=v2\n"), func() {})
	return server
}

// protocol2 runs the same steps as the stages on that delegate, with secret tasks, templates
// and masks.
func (s *site) protocol2(t *testing.T, server *clienttest.Server, values map[string]string) {
	derived := derivedFrom(values)

	var own []*task.Task
	references := map[string]string{"DERIVED": `<{"user:${{secrets.PLAIN}}" | getAsBase64}>`}
	for _, name := range []string{"PLAIN", "ODD", "KEY", "CRLFKEY", "EXPRESSION"} {
		references[name] = "${{secrets." + name + "}}"
		own = append(own, static(name, values[name]))
	}
	all := map[string]string{"DERIVED": derived}
	for k, v := range values {
		all[k] = v
	}
	names := []string{"PLAIN", "ODD", "KEY", "CRLFKEY", "EXPRESSION", "DERIVED", "MASKED", "PREFIX", "LONGER", "WORD"}
	vars := secretVariables(all, references, names...)
	vars[huntVariable] = s.hunt.processes.marker
	do := func(typ, step string, data object, own ...*task.Task) *clienttest.Response {
		if typ == "local_execute" {
			environment, _ := data["environment"].(object)
			data["environment"] = with(with(vars, object{"HUNT": "second." + step}), environment)
		}
		text, err := json.Marshal(with(data, object{"group_id": "second", "id": step}))
		require.NoError(t, err)
		sub := server.Submit(&task.Task{Type: typ, Data: text, Secrets: own, Logger: &task.Logger{
			Address: s.url, Token: s.token, Account: s.account, Key: "second/" + step, Masks: []string{values["MASKED"]},
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err := sub.Wait(ctx)
		require.NoError(t, err)
		s.searchAnswer(t, step, res)
		if typ == "local_execute" {
			s.log(t, "second/"+step)
		}
		return res
	}
	script := func(shell, text string, more object) object {
		return with(object{"run": object{"entrypoint": []string{shell, "-c"}, "commands": []string{text}}}, more)
	}
	image := object{"image": testbed.Image, "pull": "Never"}
	s.hunt.engine.LeavesNothing(t, "second")
	hidden := []string{values["PREFIX"], values["LONGER"], values["WORD"]}
	ok := func(r *clienttest.Response) {
		t.Helper()
		var answer stage.ExecuteResponse
		assert.NoError(t, json.Unmarshal(r.Data, &answer), "%s %s", r.Error, r.Data)
		assert.Equal(t, stage.Success, answer.Status, answer.ErrorMessage)
	}
	ok(do("local_init", "init", object{"secrets": hidden, "network": object{"id": "second"}, "envs": object{"TOP": "${{secrets.ODD}}"}}, own...))
	ok(do("local_execute", "bash", script("bash", leakScript(t, "say.sh"), saying(all, names...)), own...))
	ok(do("local_execute", "say", script("sh", leakScript(t, "say.sh"), with(image, saying(all, names...))), own...))
	ok(do("local_execute", "give", script("bash", leakScript(t, "give.sh"), giving(values)), own...))
	do("local_execute", "fails", script("sh", "exit 3", object{"working_dir": "/none/${{secrets.PLAIN}}"}), own...)
	for step, secret := range map[string]*task.Task{
		"unresolved": static("OTHER", values["PLAIN"]),
		"no-base64":  {ID: "PLAIN", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"base64":true,"value":"!` + values["PLAIN"] + `"}]}`)},
		"two":        {ID: "PLAIN", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":"` + values["PLAIN"] + `"},{"value":"x"}]}`)},
		"no-vault": {ID: "PLAIN", Type: "secret/vault/fetch", Data: json.RawMessage(
			`{"secrets":[{"config":{"address":"http://127.0.0.1:1","token":"` + values["PLAIN"] + `"},"path":"kv/app","key":"password"}]}`)},
	} {
		got := do("local_execute", step, script("sh", "true", object{"environment": object{"X": "${{secrets.OTHER}} ${{secrets.PLAIN}}"}}), secret)
		assert.Equal(t, task.Failed, got.Code, step)
	}
	do("local_cleanup", "cleanup", object{})
}

// derivedFrom returns the value that the template makes for the steps.
func derivedFrom(values map[string]string) string {
	return base64.StdEncoding.EncodeToString([]byte("user:" + values["PLAIN"]))
}

func static(id, value string) *task.Task {
	data, _ := json.Marshal(object{"secrets": []object{{"value": base64.StdEncoding.EncodeToString([]byte(value)), "base64": true}}})
	return &task.Task{ID: id, Type: task.TypeSecretStatic, Data: data}
}

// searchAnswer searches an answer of a delegate, except for secret outputs: the protocol
// requires their values there.
func (s *site) searchAnswer(t *testing.T, step string, r *clienttest.Response) {
	t.Helper()
	var data map[string]any
	if len(r.Data) > 0 {
		require.NoError(t, json.Unmarshal(r.Data, &data), "%s", r.Data)
	}
	if outputs, ok := data["outputs"].([]any); ok {
		for _, o := range outputs {
			if o, ok := o.(map[string]any); ok && o["type"] == stage.OutputSecret {
				delete(o, "value")
			}
		}
	}
	if artifact, ok := data["artifact"].(string); ok {
		plain, err := base64.StdEncoding.DecodeString(artifact)
		require.NoError(t, err)
		s.hunt.search("answers", step+"'s artifact", plain)
	}
	text, err := json.Marshal(data)
	require.NoError(t, err)
	s.hunt.searchDecoded("answers", step, text)
	s.hunt.search("answers", step+"'s error", []byte(r.Error))
}
