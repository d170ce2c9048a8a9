package yaml

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The plans of testdata. UPDATE_PLANS=1 writes them.
func TestPlansAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	in := Input{
		Variables: push(), Trusted: true,
		Secrets: map[string]string{
			"token": "not-a-real-token", "registry": `{"auths":{"https://registry.example/v1/":{"auth":"bWU6bm90LWEtcmVhbC1wYXNzd29yZA=="}}}`,
		},
		Netrc: Netrc{Machine: "git.example", Login: "me", Password: "not-a-real-netrc"},
		Options: Options{
			Volumes: []string{"/var/cache:/cache:ro"}, Networks: []string{"proxy"}, Environment: map[string]string{"HTTP_PROXY": "http://proxy.example", "STAGE": "runner"},
			Memory: 1 << 30, CPUShares: 10, CPUPeriod: 100_000, CPUQuota: 200_000, CPUSet: []string{"0"},
		},
	}
	for _, name := range []string{"graph", "exec", "windows"} {
		plan, err := compile(t, string(read(t, "testdata/"+name+".yml")), in)
		require.NoError(t, err)
		got, err := json.MarshalIndent(plan, "", "  ")
		require.NoError(t, err)
		golden := "testdata/" + name + ".json"
		if os.Getenv("UPDATE_PLANS") != "" {
			require.NoError(t, os.WriteFile(golden, append(got, '\n'), 0o600))
		}
		require.Equal(t, strings.TrimSpace(string(read(t, golden))), string(got), golden)
		// The parts that reach a disk have no secret.
		init, err := json.Marshal(plan.Init.Envs)
		require.NoError(t, err)
		require.NotContains(t, string(init), "not-a-real")
	}
}
