package testbed

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"
)

// NewNamespace creates a namespace that accepts pods at once. The namespace is removed with
// its content at the end of the test.
func (c *Cluster) NewNamespace(tb testing.TB) string {
	tb.Helper()
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	name := "test-" + hex.EncodeToString(b)
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := c.call(ctx, http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}}, nil); err != nil {
		tb.Fatalf("make a namespace: %v", err)
	}
	tb.Cleanup(func() { c.RemoveNamespace(tb, name) })
	// Without the service account pods are refused, and a controller creates it later.
	if err := c.await(ctx, "/api/v1/namespaces/"+name+"/serviceaccounts", "default", func(object) bool { return true }); err != nil {
		tb.Fatalf("wait for a namespace's service account: %v", err)
	}
	return name
}

// RemoveNamespace removes a namespace and its content, without waiting for the end. A missing
// namespace is not an error.
func (c *Cluster) RemoveNamespace(tb testing.TB, name string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	// Without this call pods would use their whole grace period.
	err := c.call(ctx, http.MethodDelete, "/api/v1/namespaces/"+name+"/pods", map[string]any{"gracePeriodSeconds": 0}, nil)
	if err == nil {
		err = c.call(ctx, http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil)
	}
	if e := (*answerError)(nil); err != nil && (!errors.As(err, &e) || e.status != http.StatusNotFound) {
		tb.Errorf("remove namespace %s: %v", name, err)
	}
}

// object holds the members of a cluster's object that this package reads.
type object struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Taints []any `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (o object) is(condition string) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// awaitNode returns when the cluster accepts pods.
func (c *Cluster) awaitNode(ctx context.Context) error {
	// A taint keeps pods off a node that is not ready. It is removed a moment later.
	err := c.await(ctx, "/api/v1/nodes", c.Node, func(o object) bool { return o.is("Ready") && len(o.Spec.Taints) == 0 })
	if err != nil {
		return fmt.Errorf("wait for the node: %w", err)
	}
	return c.await(ctx, "/api/v1/namespaces/default/serviceaccounts", "default", func(object) bool { return true })
}

// await returns when an object exists and satisfies as.
func (c *Cluster) await(ctx context.Context, collection, name string, as func(object) bool) error {
	only := "?fieldSelector=" + url.QueryEscape("metadata.name="+name)
	for {
		var list struct {
			object
			Items []object `json:"items"`
		}
		if err := c.call(ctx, http.MethodGet, collection+only, nil, &list); err != nil {
			return err
		}
		if slices.ContainsFunc(list.Items, as) {
			return nil
		}
		found, err := c.watch(ctx, collection+only+"&watch=1&resourceVersion="+list.Metadata.ResourceVersion, as)
		if found || err != nil {
			return err
		}
	}
}

// watch reports false if the watch ended before the object satisfied as.
func (c *Cluster) watch(ctx context.Context, path string, as func(object) bool) (bool, error) {
	body, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	for events := json.NewDecoder(body); ; {
		var e struct {
			Type   string `json:"type"`
			Object object `json:"object"`
		}
		switch err := events.Decode(&e); {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			return false, nil
		case (e.Type == "ADDED" || e.Type == "MODIFIED") && as(e.Object):
			return true, nil
		case e.Type == "ERROR":
			return false, nil // too old: read the object again
		}
	}
}

// awaitServer polls until the API server is ready, because it gives no signal.
func (c *Cluster) awaitServer(ctx context.Context) error {
	return persist(ctx, "the API server", func() error { return c.call(ctx, http.MethodGet, "/readyz", nil, nil) })
}

func (c *Cluster) awaitContainerd(ctx context.Context) error {
	return persist(ctx, "containerd", func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", c.containerd())
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

func persist(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}

// answerError is an answer with an error status.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

// call sends a request to the API server as an administrator.
func (c *Cluster) call(ctx context.Context, method, path string, in, out any) error {
	body, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if out == nil {
		_, err = io.Copy(io.Discard, body)
		return err
	}
	return json.NewDecoder(body).Decode(out)
}

func (c *Cluster) request(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var sent io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Server+path, sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	// Each call uses a new connection, so that no idle connection looks like a leak of a test.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: c.tls, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close()
		return nil, &answerError{status: resp.StatusCode, text: string(text)}
	}
	return resp.Body, nil
}
