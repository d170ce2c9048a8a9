package manager_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// loaded is a manager with one running stage and three that wait.
func loaded(t *testing.T) *server {
	t.Helper()
	s := start(t)
	id := s.register("build-1", dockerTypes, "linux")
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
	s.submit(`{"id":"a","selectors":["linux"]}`)
	s.take(id, initTask)
	s.submit(`{"id":"b","selectors":["linux"],"pipeline":"web"}`)
	s.submit(`{"id":"c","selectors":["linux","gpu"],"labels":{"team":"x"}}`)
	s.submit(`{"id":"d","infra":"kubernetes"}`)
	return s
}

// The answer has the form that KEDA's metrics-api scaler reads: a JSON object, in which valueLocation names a number,
// with a bearer token.
func TestTheDemandIsShown(t *testing.T) {
	t.Parallel()
	s := loaded(t)
	for query, want := range map[string]string{
		"":                          `{"value":4,"waiting":3,"running":1}`,
		"&tags=linux":               `{"value":3,"waiting":2,"running":1}`,
		"&tags=linux,+gpu":          `{"value":3,"waiting":3,"running":0}`,
		"&infra=kubernetes":         `{"value":1,"waiting":1,"running":0}`,
		"&pipeline=web":             `{"value":1,"waiting":1,"running":0}`,
		"&label=team%3Dx":           `{"value":1,"waiting":1,"running":0}`,
		"&label=team%3Dx&label=a=b": `{"value":0,"waiting":0,"running":0}`,
	} {
		r := s.call("GET", "/api/demand?accountId=acc"+query, "")
		require.Equal(t, 200, r.status, r.body)
		assert.JSONEq(t, want, r.body, query)
	}
	assert.JSONEq(t, `{"value":0,"waiting":0,"running":0}`, s.as(otherSecret, otherAccount).call("GET", "/api/demand?accountId=other", "").body)
	for query, want := range map[string]string{
		"&infra=cloud": "it must be local, vm or kubernetes", "&label=x": "NAME=VALUE", "&tag=x": `did you mean \"tags\"?`,
		"&tags=" + strings.Repeat("a,", 101): "at most 100",
	} {
		r := s.call("GET", "/api/demand?accountId=acc"+query, "")
		assert.Equal(t, 400, r.status, r.body)
		assert.Contains(t, r.body, want)
	}
	reader, err := s.m.Token(account, api.RoleRead, 365*24*time.Hour)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/api/demand?accountId=acc&tags=linux", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+reader)
	resp, err := s.http.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var got map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	assert.InDelta(t, 3, got["value"], 0, "valueLocation: value")

	client, err := api.New(api.Config{URL: s.url, Account: account, Token: reader})
	require.NoError(t, err)
	d, err := client.Demand(t.Context(), api.DemandQuery{Tags: []string{"linux", "gpu"}, Labels: map[string]string{"team": "x"}})
	require.NoError(t, err)
	assert.Equal(t, api.Demand{Value: 1, Waiting: 1}, d)
}

func external(t *testing.T, h http.Handler, path string) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var out map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out), w.Body)
	return w.Code, out
}

// A namespace sees the metrics of its account only, in the forms that Kubernetes documents.
func TestTheExternalMetricsOfKubernetes(t *testing.T) {
	t.Parallel()
	s := loaded(t)
	h, err := s.m.ExternalMetrics(map[string]string{"ci": account, "builds": otherAccount})
	require.NoError(t, err)
	const base = "/apis/external.metrics.k8s.io/v1beta1"
	status, list := external(t, h, base)
	assert.Equal(t, 200, status)
	assert.Equal(t, "APIResourceList", list["kind"])
	assert.Len(t, list["resources"], 3)
	for path, kind := range map[string]string{"/apis": "APIGroupList", "/apis/external.metrics.k8s.io": "APIGroup"} {
		_, got := external(t, h, path)
		assert.Equal(t, kind, got["kind"])
	}

	status, got := external(t, h, base+"/namespaces/ci/dlite-stages?labelSelector=tags%20in%20%28gpu%2Clinux%29%2Clabel%2Fteam%3Dx")
	assert.Equal(t, 200, status)
	assert.Equal(t, map[string]any{
		"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": map[string]any{},
		"items": []any{map[string]any{
			"metricName": "dlite-stages", "metricLabels": map[string]any{"tags": "gpu,linux", "label/team": "x"},
			"timestamp": "2023-11-14T22:13:20Z", "value": "1",
		}},
	}, got)
	for path, want := range map[string]string{
		"ci/dlite-stages": "4", "ci/dlite-stages-waiting?labelSelector=tags%3Dlinux": "2", "ci/dlite-stages-running": "1",
		"builds/dlite-stages": "0", "ci/dlite-stages?labelSelector=infra%3D%3Dkubernetes": "1", "ci/dlite-stages?labelSelector=pipeline%3Dweb": "1",
	} {
		status, got := external(t, h, base+"/namespaces/"+path)
		require.Equal(t, 200, status, "%v", got)
		assert.Equal(t, want, got["items"].([]any)[0].(map[string]any)["value"], path)
	}
	for path, want := range map[string]int{
		base + "/namespaces/other/dlite-stages": 403, base + "/namespaces/ci/unknown": 404, base + "/unknown": 404, "/openapi/v2": 404,
		base + "/namespaces/ci/dlite-stages?labelSelector=zone%3Da":                     400,
		base + "/namespaces/ci/dlite-stages?labelSelector=tags%20notin%20(a)":           400,
		base + "/namespaces/ci/dlite-stages?labelSelector=infra%3Dcloud":                400,
		base + "/namespaces/ci/dlite-stages?labelSelector=infra%3Dvm,infra%3Dvm":        400,
		base + "/namespaces/ci/dlite-stages?labelSelector=infra%20in%20(vm,local)":      400,
		base + "/namespaces/ci/dlite-stages?labelSelector=" + strings.Repeat("a", 5000): 400,
	} {
		status, got := external(t, h, path)
		assert.Equal(t, want, status, path)
		assert.Equal(t, "Status", got["kind"], path)
		assert.NotEmpty(t, got["message"])
	}
	for _, bad := range []map[string]string{nil, {"ci": "unknown"}} {
		_, err := s.m.ExternalMetrics(bad)
		require.Error(t, err)
	}
}
