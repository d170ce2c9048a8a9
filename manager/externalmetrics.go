package manager

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
)

// externalGroup and externalVersion are the group and the version of the API of Kubernetes for metrics from outside.
const (
	externalGroup   = "external.metrics.k8s.io"
	externalVersion = "v1beta1"
)

// externalValues are the metrics and their values.
var externalValues = map[string]func(api.Demand) int{
	"dlite-stages":         func(d api.Demand) int { return d.Value },
	"dlite-stages-waiting": func(d api.Demand) int { return d.Waiting },
	"dlite-stages-running": func(d api.Demand) int { return d.Running },
}

// ExternalMetrics returns a handler of the external metrics API of Kubernetes (external.metrics.k8s.io/v1beta1), with
// which a HorizontalPodAutoscaler scales delegates. The metrics are dlite-stages, dlite-stages-waiting and
// dlite-stages-running: the counts of [api.Demand]. The selector of a metric has the keys tags, infra, pipeline and
// label/NAME; "tags in (linux, gpu)" stands for delegates with these tags.
//
// Namespaces maps a namespace of the cluster to the account whose stages its metrics count. The handler refuses other
// namespaces. It returns an error if an account is unknown.
//
// The handler does not authenticate its callers. Serve it on an address that accepts only the certificate of the
// cluster's API server (requestheader-client-ca-file, requestheader-allowed-names). The API server authenticates and
// authorizes its users before it passes their requests on.
func (m *Manager) ExternalMetrics(namespaces map[string]string) (http.Handler, error) {
	if len(namespaces) == 0 {
		return nil, errors.New("manager: external metrics: there is no namespace: name the account of one at least")
	}
	for namespace, account := range namespaces {
		if _, ok := m.auth.secrets[account]; !ok {
			return nil, fmt.Errorf("manager: external metrics: namespace %q: there is no account %q: Config.Accounts has the accounts", namespace, account)
		}
	}
	e := &externalMetrics{manager: m, accounts: maps.Clone(namespaces)}
	r := chi.NewRouter()
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeKubernetes(w, http.StatusNotFound, "there is no "+cut(r.URL.Path, maxPathName))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		writeKubernetes(w, http.StatusMethodNotAllowed, "metrics can only be read")
	})
	version := kubernetesObject{"groupVersion": externalGroup + "/" + externalVersion, "version": externalVersion}
	group := kubernetesObject{"kind": "APIGroup", "apiVersion": "v1", "name": externalGroup, "versions": []any{version}, "preferredVersion": version}
	r.Get("/apis", constantJSON(kubernetesObject{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{group}}))
	r.Get("/apis/"+externalGroup, constantJSON(group))
	resources := []any{}
	for _, name := range slices.Sorted(maps.Keys(externalValues)) {
		resources = append(resources, kubernetesObject{
			"name": name, "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": []string{"get"},
		})
	}
	r.Get("/apis/"+externalGroup+"/"+externalVersion, constantJSON(kubernetesObject{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version["groupVersion"], "resources": resources,
	}))
	r.Get("/apis/"+externalGroup+"/"+externalVersion+"/namespaces/{namespace}/{metric}", e.get)
	return r, nil
}

type kubernetesObject = map[string]any

func constantJSON(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, v) }
}

// writeKubernetes writes an error as the API server of Kubernetes does.
func writeKubernetes(w http.ResponseWriter, status int, message string) {
	reason := map[int]string{
		http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden", http.StatusBadRequest: "BadRequest",
		http.StatusMethodNotAllowed: "MethodNotAllowed", http.StatusServiceUnavailable: "ServiceUnavailable",
	}[status]
	writeJSON(w, status, kubernetesObject{
		"kind": "Status", "apiVersion": "v1", "metadata": kubernetesObject{}, "status": "Failure", "code": status, "reason": reason, "message": message,
	})
}

// externalMetrics serves the metrics of the accounts of namespaces.
type externalMetrics struct {
	manager  *Manager
	accounts map[string]string
}

func (e *externalMetrics) get(w http.ResponseWriter, r *http.Request) {
	metric, namespace := pathParam(r, "metric"), pathParam(r, "namespace")
	value := externalValues[metric]
	account, ok := e.accounts[namespace]
	switch {
	case value == nil:
		writeKubernetes(w, http.StatusNotFound, fmt.Sprintf("there is no metric %q; there are %s", cut(metric, maxPathName),
			strings.Join(slices.Sorted(maps.Keys(externalValues)), ", ")))
		return
	case !ok:
		writeKubernetes(w, http.StatusForbidden, fmt.Sprintf("the namespace %q has no account: the settings of the manager name the namespaces with their accounts", cut(namespace, maxPathName)))
		return
	}
	labels, err := parseSelector(r.URL.Query().Get("labelSelector"))
	var query selected
	if err == nil {
		query, err = selectedBy(labels)
	}
	if err != nil {
		writeKubernetes(w, http.StatusBadRequest, err.Error())
		return
	}
	kind, err := kindOfDelegates(query.tags, query.infra, query.pipeline, query.labels)
	if err != nil {
		writeKubernetes(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := e.manager.journal.Sync(r.Context()); err != nil {
		writeKubernetes(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	d, err := e.manager.demand(account, kind)
	if err != nil {
		writeKubernetes(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	shown := map[string]string{}
	for name, values := range labels {
		shown[name] = strings.Join(values, ",")
	}
	writeJSON(w, http.StatusOK, kubernetesObject{
		"kind": "ExternalMetricValueList", "apiVersion": externalGroup + "/" + externalVersion, "metadata": kubernetesObject{},
		"items": []any{kubernetesObject{
			"metricName": metric, "metricLabels": shown, "timestamp": e.manager.cfg.Clock.Now().UTC().Format(time.RFC3339),
			"value": strconv.Itoa(value(d)),
		}},
	})
}

// selected is a selector as the parameters of a query.
type selected struct {
	tags, labels    []string
	infra, pipeline string
}

// selectedBy reads the keys of a selector.
func selectedBy(labels map[string][]string) (out selected, err error) {
	for key, values := range labels {
		name, isLabel := strings.CutPrefix(key, "label/")
		switch {
		case key == "tags":
			out.tags = []string{strings.Join(values, ",")}
			continue
		case len(values) != 1:
			return out, fmt.Errorf("the selector: %s must have one value", cut(key, maxPathName))
		case key == "infra":
			out.infra = values[0]
		case key == "pipeline":
			out.pipeline = values[0]
		case isLabel:
			out.labels = append(out.labels, name+"="+values[0])
		default:
			return out, fmt.Errorf("the selector: the key %q is unknown; there are tags, infra, pipeline and label/NAME", cut(key, maxPathName))
		}
	}
	return out, nil
}

const (
	// maxSelector is the largest selector, in bytes.
	maxSelector = 4096
	selectorKey = `[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?`
	selectorVal = `([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?`
)

// The forms of a requirement of a selector.
var (
	selectorEqual = regexp.MustCompile(`^\s*(` + selectorKey + `)\s*==?\s*(` + selectorVal + `)\s*(?:,|$)`)
	selectorIn    = regexp.MustCompile(`^\s*(` + selectorKey + `)\s+in\s*\(([-A-Za-z0-9_., ]*)\)\s*(?:,|$)`)
)

// parseSelector parses a label selector of Kubernetes: requirements with "=" and "in", separated by commas.
func parseSelector(text string) (map[string][]string, error) {
	if len(text) > maxSelector {
		return nil, fmt.Errorf("the selector has %d bytes, and at most %d are allowed", len(text), maxSelector)
	}
	out := map[string][]string{}
	for rest := text; strings.TrimSpace(rest) != ""; {
		var key string
		var values []string
		if m := selectorEqual.FindStringSubmatch(rest); m != nil {
			key, values, rest = m[1], []string{m[3]}, rest[len(m[0]):]
		} else if m := selectorIn.FindStringSubmatch(rest); m != nil {
			key, rest = m[1], rest[len(m[0]):]
			for v := range strings.SplitSeq(m[3], ",") {
				values = append(values, strings.TrimSpace(v))
			}
		} else {
			return nil, fmt.Errorf(`the selector %q: each part must be of the form "key=value" or "key in (value, ...)"`, cut(text, maxPathName))
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("the selector: %s is there twice", cut(key, maxPathName))
		}
		out[key] = values
	}
	return out, nil
}
