package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// secret is a value that no message may show.
const secret = "visibly-fake-secret"

func load(t *testing.T, file string, environ ...string) (config, []string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.env")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	return loadConfig(path, environ)
}

const required = "ACCOUNT_ID=a\nTOKEN=" + secret + "\nURL=http://127.0.0.1:1\n"

// Rule X2: the program reads the file from the documentation page.
func TestTheDocumentedFileIsUnderstood(t *testing.T) {
	t.Parallel()
	c, warnings, err := load(t, `ACCOUNT_ID="acct"
TOKEN="`+secret+`"
TAGS="macos-arm64, local"
URL="https://manager.example"
NAME="DelegateTest"
MAX_STAGES=1
`)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Equal(t, "acct", c.AccountID)
	assert.Equal(t, []string{"macos-arm64", "local", runtime.GOOS, runtime.GOARCH}, c.Tags)
	assert.Equal(t, "DelegateTest", c.Name)
	assert.EqualValues(t, 1, c.MaxStages)
	assert.Equal(t, "v1", string(c.Protocol))
}

// Rule X2: settings have other names too. The short name wins over a long one, and the environment wins over the
// file.
func TestShortNamesAndTheEnvironmentWin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file    string
		environ []string
		want    string
	}{
		"a prefix":                            {"HARNESS_NAME=p\n", nil, "p"},
		"another name":                        {"DELEGATE_NAME=d\n", nil, "d"},
		"a prefixed other name":               {"HARNESS_DELEGATE_NAME=hd\n", nil, "hd"},
		"the short name wins":                 {"HARNESS_NAME=p\nNAME=n\nDELEGATE_NAME=d\n", nil, "n"},
		"the environment wins":                {"NAME=n\n", []string{"NAME=e"}, "e"},
		"a long name of the environment wins": {"NAME=n\n", []string{"DELEGATE_NAME=e"}, "e"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, err := load(t, required+tc.file, tc.environ...)
			require.NoError(t, err)
			assert.Equal(t, tc.want, c.Name)
		})
	}
	c, _, err := load(t, "ACCOUNT_ID=a\nTOKEN=x\nMANAGER_HOST_AND_PORT=https://manager.example:8443\n")
	require.NoError(t, err)
	assert.Equal(t, "https://manager.example:8443", c.URL)
}

// Rules X2, Q1: the error lists all wrong settings at once, with the valid values. It shows no value of a secret
// setting.
func TestWrongSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for setting, message := range map[string]string{
		"MAX_STAGES=0":                    "MAX_STAGES is \"0\": it must be a positive integer",
		"MAX_STAGES=many":                 "positive integer",
		"PARALLEL_WORKERS=0":              "PARALLEL_WORKERS: it must be at least 1",
		"POLL_INTERVAL_MILLISECS=fast":    "POLL_INTERVAL_MILLISECS: it must be a whole number",
		"PROTOCOL=v3":                     "PROTOCOL: it must be v1 or v2",
		"OUTPUT_FILE_LIMIT_BYTES=0":       "OUTPUT_FILE_LIMIT_BYTES: it must be at least 1",
		"MASK_MIN_LENGTH=0":               "MASK_MIN_LENGTH: it must be from 1 to 64",
		"MASK_MIN_LENGTH=65":              "MASK_MIN_LENGTH: it must be from 1 to 64",
		"CLEANUP_GRACE_PERIOD_SECONDS=-1": "CLEANUP_GRACE_PERIOD_SECONDS: it must be 0 or more",
		"HARNESS_SUBPROCESS_KILL_PROCESS_GROUP_MAX_SIGTERM_ATTEMPTS=-1": "SUBPROCESS_KILL_PROCESS_GROUP_MAX_SIGTERM_ATTEMPTS: it must be 0 or more",
		"HARNESS_SUBPROCESS_KILL_PROCESS_GROUP_RETRY_INTERVAL_SECS=0":   "SUBPROCESS_KILL_PROCESS_GROUP_RETRY_INTERVAL_SECS: it must be at least 1",
		"DELEGATE_RESOURCE_THRESHOLD=120":                               "DELEGATE_RESOURCE_THRESHOLD: it must be above 0",
		"LOG_FORMAT=xml":                                                "LOG_FORMAT: it must be console or json",
		"DYNAMIC_REQUEST_HANDLING=possibly":                             "DYNAMIC_REQUEST_HANDLING: it must be true or false",
		"DELEGATE_RESOURCE_THRESHOLD=high":                              "DELEGATE_RESOURCE_THRESHOLD: it must be a number",
		"DOCKER_HOST=engine":                                            "DOCKER_HOST: it must be an address such as",
		"LOG_LEVEL=loud":                                                "LOG_LEVEL: it must be trace",
	} {
		_, _, err := load(t, required+setting+"\n")
		require.ErrorContains(t, err, message, setting)
		assert.NotContains(t, err.Error(), secret)
	}
	_, _, err := load(t, "TOKEN="+secret+"\nMAX_STAGES=x\n")
	require.ErrorContains(t, err, "ACCOUNT_ID: it must be set")
	require.ErrorContains(t, err, "URL: it must be set")
	require.ErrorContains(t, err, "MAX_STAGES")
}

// Rule X2: an error that only the part using a setting can detect names the setting, and not that part.
func TestSettingsThatTheirUsersRefuseAreNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	missing := filepath.Join(file, "missing") // does not exist and cannot be created
	const cluster = "\nDRIVERS=kubernetes\nKUBERNETES_AGENT_IMAGE=agent:1\nKUBECONFIG=%s\n"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600))
	for setting, text := range map[string]string{
		"URL":                             "URL=ftp://manager.example",
		"TOKEN":                           "TOKEN=short",
		"CERTS_DIR":                       "CERTS_DIR=" + missing,
		"CLIENT_CERT_FILE":                "CLIENT_CERT_FILE=" + missing,
		"PROXY_HOST":                      "PROXY_HOST=proxy.example\nPROXY_SCHEME=ftp",
		"HTTP_BIND":                       "HTTP_BIND=nowhere",
		"WORK_DIR":                        "WORK_DIR=" + missing,
		"LEDGER_DIR":                      "LEDGER_DIR=" + missing,
		"KUBECONFIG":                      fmt.Sprintf(cluster, missing),
		"KUBERNETES_RUN_AS":               fmt.Sprintf(cluster, kubeconfig) + "KUBERNETES_RUN_AS=root\nKUBERNETES_RESTRICTED=true",
		"KUBERNETES_POD_TEMPLATE":         fmt.Sprintf(cluster, kubeconfig) + "KUBERNETES_POD_TEMPLATE=" + file,
		"VM_POOLS":                        "DRIVERS=vm\nVM_POOLS=" + missing,
		"KUBERNETES_POD_TEMPLATE: open /": fmt.Sprintf(cluster, kubeconfig) + "KUBERNETES_POD_TEMPLATE=" + missing,
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c, _, err := load(t, strings.Join([]string{
				strings.ReplaceAll(required, secret, strings.Repeat("0", 32)), "LEDGER_DIR=" + dir, "WORK_DIR=" + dir, "HTTP_BIND=off", text, "",
			}, "\n"))
			require.NoError(t, err)
			err = serve(t.Context(), c, nil)
			require.Error(t, err)
			assert.True(t, strings.HasPrefix(err.Error(), setting), err.Error())
		})
	}
}

// A setting for a driver that is not selected is a warning and not an error.
func TestSettingsOfOtherDriversAreNamed(t *testing.T) {
	t.Parallel()
	_, warnings, err := load(t, required+"VM_POOLS=pools.yaml\nKUBERNETES_RESTRICTED=true\nDRIVERS=local\n")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"KUBERNETES_RESTRICTED is for nothing, as kubernetes is not one of DRIVERS", "VM_POOLS is for nothing, as vm is not one of DRIVERS",
	}, warnings)
	_, _, err = load(t, required+"LOCAL_STAGES=vm\n")
	assert.EqualError(t, err, "LOCAL_STAGES: it must be one of DRIVERS, local")
}

// Rule X2: an unknown setting is an error that suggests the setting with the most similar name.
func TestAnUnknownSettingIsNamed(t *testing.T) {
	t.Parallel()
	for name, meant := range map[string]string{
		"MAX_STAGE": "MAX_STAGES", "HARNESS_MAX_STAGE": "MAX_STAGES", "DELEGATE_TOKENS": "DELEGATE_TOKEN", "max_stages": "MAX_STAGES",
	} {
		_, _, err := load(t, required+name+"="+secret+"\n")
		require.ErrorContains(t, err, "unknown setting "+name+": did you mean "+meant)
		assert.NotContains(t, err.Error(), secret)
	}
	_, _, err := load(t, required+"SOMETHING_ELSE=3\n")
	require.ErrorContains(t, err, `unknown setting SOMETHING_ELSE: "delegate settings" lists the valid ones`)
	_, warnings, err := load(t, required+"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1\n")
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "OTEL_EXPORTER_OTLP_ENDPOINT from the environment alone")
}

// Rule X2: an address without a scheme is an error that shows the address with a scheme.
func TestAnAddressNeedsAScheme(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"URL", "MANAGER_HOST_AND_PORT"} {
		_, _, err := load(t, "ACCOUNT_ID=a\nTOKEN=x\n"+name+"=manager.example:8443\n")
		assert.EqualError(t, err, "URL: it must be an address that begins with https:// or http://: did you mean https://manager.example:8443?")
	}
}

func TestAFileThatCannotBeReadIsAnErrorWithoutItsContent(t *testing.T) {
	t.Parallel()
	_, _, err := loadConfig(filepath.Join(t.TempDir(), "missing.env"), nil)
	require.ErrorContains(t, err, "no such file")
	_, _, err = load(t, "TOKEN \""+secret+"\n")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), secret)
}

func TestSettingsAreListed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, describeSettings(&out))
	for _, name := range settingNames() {
		assert.Contains(t, out.String(), name)
	}
	assert.Equal(t, len(settingNames()), strings.Count(out.String(), "\n"))
}
