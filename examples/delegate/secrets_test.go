package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Rules S1, S2, S3, S5, X2: the steps of a stage refer to secrets of every configured provider, over either
// protocol. The steps get the values. No answer and no file of the delegate contains one.
func TestStepsGetSecretsFromTheConfiguredProviders(t *testing.T) {
	v := testbed.Vault(t)
	v.Do(t, "POST", "sys/mounts/kv", map[string]any{"type": "kv"})
	v.Do(t, "POST", "kv/app", map[string]any{"password": "from-vault-hush"})
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ci.yaml"), []byte("db:\n  password: from-file-hush\n"), 0o600))
	t.Setenv("DLITE_SECRET_TOKEN", "from-env-hush")

	const script = `test "$E" = from-env-hush && test "$F" = from-file-hush && test "$V" = from-vault-hush && test "$B" = "$WANT" && printf 'OUT=%s\n' "$V$B" > "$DRONE_OUTPUT"`
	step := func(id string) stage.ExecuteRequest {
		return stage.ExecuteRequest{Step: stage.Step{
			ID: "step", Kind: "Run", Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{script}}, StageRuntimeID: id,
			Environment: map[string]string{
				"E": "${{secrets.env://TOKEN}}", "F": "${{secrets.file://ci.yaml#db.password}}", "V": "${{secrets.vault://kv/app#password}}",
				"B": "<{ ci:${{secrets.vault://kv/app#password}} | getAsBase64 }>", "WANT": base64.StdEncoding.EncodeToString([]byte("ci:from-vault-hush")),
			},
		}}
	}
	for _, protocol := range []string{"v1", "v2"} {
		d := start(t, "PROTOCOL="+protocol+"\nSECRETS_DIR="+dir+"\nVAULT_ADDR="+v.Address+"\nVAULT_TOKEN="+v.Token+"\n")
		d.init("one")
		in := step("one")
		in.GroupID = "one"
		got := answer[stage.ExecuteResponse](d, d.submit("CI_DOCKER_EXECUTE_TASK", in))
		assert.Equal(t, stage.Success, got.Status, got.ErrorMessage)
		assert.Equal(t, map[string]string{"OUT": secrets.Replacement}, got.OutputVars)

		in.Environment["E"] = "${{secrets.file://none}}"
		resp, err := d.submit("CI_DOCKER_EXECUTE_TASK", in).Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, task.Failed, resp.Code)
		assert.Contains(t, resp.Error+string(resp.Data), "${{secrets.file://none}}: there is no such secret")

		if protocol == "v2" { // with its own secret tasks, one of them for the same Vault
			in.Environment["E"], in.Environment["V"] = "${{secrets.own}}", "${{secrets.fetched}}"
			b, err := json.Marshal(in)
			require.NoError(t, err)
			got = answer[stage.ExecuteResponse](d, d.Submit(&task.Task{Type: "local_execute", Data: b, Secrets: []*task.Task{
				{ID: "own", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":"from-env-hush"}]}`)},
				{ID: "token", Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":"` + v.Token + `"}]}`)},
				{ID: "fetched", Type: "secret/vault/fetch", Data: json.RawMessage(
					`{"secrets":[{"config":{"address":"` + v.Address + `","token":"${{secrets.token}}"},"path":"kv/app","key":"password"}]}`)},
			}}))
			assert.Equal(t, stage.Success, got.Status, got.ErrorMessage)
		}
		for _, folder := range []string{d.workDir, d.config.LedgerDir} {
			assert.Empty(t, filesWith(t, folder, "hush"), "S5: no secret on the disk")
		}
		answer[stage.CleanupResponse](d, d.cleanup("one"))
		d.drain()
		require.NoError(t, d.wait())
	}
}

// filesWith returns the files below folder that contain text.
func filesWith(t *testing.T, folder, text string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the delegate removes files meanwhile
		}
		if strings.Contains(string(b), text) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

func TestWrongSecretSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for setting, message := range map[string]string{
		"SECRET_MANAGERS=aws,amazon":                                "SECRET_MANAGERS: it must be a list of aws, google, azure, kubernetes",
		"VAULT_ADDR=http://127.0.0.1:1":                             "VAULT_ADDR: it must be set together with exactly one of",
		"VAULT_ADDR=x\nVAULT_TOKEN=" + secret + "\nVAULT_ROLE_ID=r": "exactly one of",
		"VAULT_SECRET_ID=" + secret + "\nVAULT_SECRET_ID_FILE=f":    "VAULT_SECRET_ID: it must be set without",
		"VAULT_SECRET_ID_WRAPPED=perhaps":                           "VAULT_SECRET_ID_WRAPPED: it must be true or false",
	} {
		_, _, err := load(t, required+setting+"\n")
		require.ErrorContains(t, err, message, setting)
		assert.NotContains(t, err.Error(), secret)
	}
	c, _, err := load(t, required+"SECRET_MANAGERS=aws, kubernetes\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"aws", "kubernetes"}, c.Managers)
	_, err = openSecrets(t.Context(), SecretConfig{Dir: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "SECRETS_DIR: ")
	_, err = openSecrets(t.Context(), SecretConfig{VaultAddr: "http://127.0.0.1:1", VaultToken: "t", VaultCACert: "/does/not/exist"})
	require.ErrorContains(t, err, "VAULT_ADDR: ")
}
