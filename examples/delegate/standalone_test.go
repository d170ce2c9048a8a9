package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/task"
)

// Rules D8, D9: a task without a route runs its program, and the legacy process gets its task types.
func TestTheDelegateRunsStandaloneTasks(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the program is a shell script")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "#!/bin/sh\nprintf 'Status: 201\\n\\n%s' \"$SETTING\"\n")
	}))
	t.Cleanup(srv.Close)
	handed := make(chan string, 1)
	legacy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) == "package" {
			handed <- string(b)
			return
		}
		task.WriteJSON(w, "from the legacy process", 0)
	}))
	t.Cleanup(legacy.Close)
	r := start(t, "CGI_CACHE_DIR=\""+t.TempDir()+"\"\nCGI_TYPES=custom/check\nCGI_CACHE_MAX_SIZE_MB=1\nCGI_CACHE_MAX_AGE_DAYS=1\nCGI_ENV=SETTING=given\nSIDECAR_URL="+legacy.URL+"\nSIDECAR_TYPES=HELM\n")

	got := answer[cgi.Answer](r, r.Submit(&task.Task{Type: "custom/check", Data: json.RawMessage("1"), Config: json.RawMessage(
		`{"executable_config":{"name":"x","version":"1","executables":[{"os":"` + runtime.GOOS + `","arch":"` + runtime.GOARCH + `","url":"` + srv.URL + `"}]}}`)}))
	assert.Equal(t, 201, got.StatusCode)
	assert.Equal(t, "given", string(got.Body))
	assert.Equal(t, "from the legacy process", answer[string](r, r.submit("HELM", "x")))
	own := r.submit("delegate_task", map[string][]byte{"taskPackage": []byte("package")})
	assert.Equal(t, "package", <-handed)

	r.drain()
	require.NoError(t, <-r.over)
	assert.Zero(t, own.Attempts(), "the legacy process itself answers the manager")
}

func TestStandaloneSettingsThatAreWrong(t *testing.T) {
	t.Parallel()
	_, _, err := loadConfig("", []string{"ACCOUNT_ID=a", "TOKEN=t", "URL=http://x", "CGI_ENV=A=b,visibly-fake"})
	require.ErrorContains(t, err, "CGI_ENV: it must be a list of NAME=value")
	_, _, err = loadConfig("", []string{"ACCOUNT_ID=a", "TOKEN=t", "URL=http://x", "CGI_CACHE_MAX_SIZE_MB=-1", "CGI_CACHE_MAX_AGE_DAYS=40000"})
	require.ErrorContains(t, err, "CGI_CACHE_MAX_SIZE_MB: it must be from 1 to ")
	require.ErrorContains(t, err, "CGI_CACHE_MAX_AGE_DAYS: it must be from 1 to ")
	require.NotContains(t, err.Error(), "visibly-fake")
	out, err := client.New("http://127.0.0.1:1", "a", "", client.WithToken("visibly-fake"))
	require.NoError(t, err)
	_, err = openStandalone(context.Background(), StandaloneConfig{SidecarTypes: []string{"vm_init"}}, out, nil, 0,
		map[string]task.Handler{"vm_init": http.NotFoundHandler()}, zerolog.Nop())
	require.ErrorContains(t, err, "another handler runs vm_init already")
	_, err = openStandalone(context.Background(), StandaloneConfig{SidecarCommand: "no-such-program-anywhere"}, out, nil, 0, nil, zerolog.Nop())
	require.ErrorContains(t, err, "executable file not found")
}
