package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/hashicorp/vault/api"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/internal/secrettask"
)

// Task types, equal to task.TypeVaultFetch and task.TypeVaultEdit. This package
// does not import package task.
const (
	fetchType = "secret/vault/fetch"
	editType  = "secret/vault/edit"
)

// Routes are the handlers of the tasks of "secret/vault/fetch" and "secret/vault/edit", for a
// router. own serves tasks that bring no address along, and may be nil.
//
// The protocol description does not give their payloads. These are what existing
// runners take, as far as that is public. A config is
//
//	{"address", "namespace", "token", "role_id", "secret_id", "approle_mount"}
//
// where the last three, which are an assumption, are for an AppRole. A fetch has
// one secret, whose path is that of the API ("secret/data/app" in version 2 of the
// engine); with base64 its value is decoded:
//
//	{"secrets": [{"config", "path", "key", "base64"}]} -> {"id", "value"}
//
// An edit changes one key of a secret and leaves the others; the path is within
// the engine. UPSERT writes the key, DELETE removes it, and the secret with all
// its versions when no key is left:
//
//	{"action", "config", "engine_name", "engine_version", "path", "key", "value"} -> {"name", "status"}
//
// The status is SUCCESS; what goes wrong is an error of the task.
func Routes(own *Provider) map[string]http.Handler {
	return map[string]http.Handler{
		fetchType: secrettask.Handle(func(ctx context.Context, in fetchTask) (secrets.Secret, error) { return in.run(ctx, own) }),
		editType:  secrettask.Handle(func(ctx context.Context, in editTask) (editAnswer, error) { return in.run(ctx, own) }),
	}
}

// target says which Vault a task means.
type target struct {
	Address   string `json:"address"`
	Namespace string `json:"namespace"`
	Token     string `json:"token"`
	RoleID    string `json:"role_id"`
	SecretID  string `json:"secret_id"`
	Mount     string `json:"approle_mount"`
}

// learn makes the credentials secrets of the task.
func (t *target) learn(ctx context.Context) {
	if t != nil {
		secrets.FromContext(ctx).Add(t.Token, t.SecretID)
	}
}

// with calls f with a client for the target.
func (t *target) with(ctx context.Context, own *Provider, f func(*api.Client) error) error {
	if t == nil || *t == (target{}) {
		if own == nil {
			return errors.New("the task names no Vault, and this delegate has none of its own")
		}
		return own.with(ctx, f)
	}
	cfg := Config{Address: t.Address, Namespace: t.Namespace, Token: t.Token}
	if t.RoleID != "" {
		cfg.AppRole = &AppRole{Mount: t.Mount, RoleID: t.RoleID, SecretID: t.SecretID}
	}
	p, err := New(cfg)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // never fails
	return p.with(ctx, f)
}

type fetchTask struct {
	Secrets []struct {
		Config *target `json:"config"`
		Path   string  `json:"path"`
		Key    string  `json:"key"`
		Base64 bool    `json:"base64"`
	} `json:"secrets"`
}

func (in *fetchTask) run(ctx context.Context, own *Provider) (out secrets.Secret, err error) {
	if len(in.Secrets) != 1 {
		return out, fmt.Errorf("a Vault task must have one secret, this one has %d", len(in.Secrets))
	}
	s := in.Secrets[0]
	s.Config.learn(ctx)
	name, err := cleanPath(s.Path)
	if err != nil {
		return out, err
	}
	err = s.Config.with(ctx, own, func(c *api.Client) error {
		data, err := readRaw(ctx, c, name, nil)
		if err == nil {
			out.Value, err = field(data, s.Key)
		}
		return err
	})
	if err != nil {
		return secrets.Secret{}, fmt.Errorf("%s#%s: %w", s.Path, s.Key, err)
	}
	secrets.FromContext(ctx).Add(out.Value)
	out.Value, err = secrettask.DecodeValue(s.Base64, out.Value)
	return out, err
}

// cleanPath refuses what would lead elsewhere.
func cleanPath(name string) (string, error) {
	name = strings.Trim(name, "/")
	if name == "" || path.Clean("/"+name) != "/"+name {
		return "", fmt.Errorf("%q is no path of a secret", name)
	}
	return name, nil
}

type editTask struct {
	Action        string  `json:"action"`
	Config        *target `json:"config"`
	EngineName    string  `json:"engine_name"`
	EngineVersion int     `json:"engine_version"`
	Path          string  `json:"path"`
	Key           string  `json:"key"`
	Value         string  `json:"value"`
}

type editAnswer struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

func (in *editTask) run(ctx context.Context, own *Provider) (editAnswer, error) {
	secrets.FromContext(ctx).Add(in.Value)
	in.Config.learn(ctx)
	mount, err := cleanPath(in.EngineName)
	if err != nil {
		return editAnswer{}, fmt.Errorf("engine_name: %w", err)
	}
	name, err := cleanPath(in.Path)
	if err != nil {
		return editAnswer{}, fmt.Errorf("path: %w", err)
	}
	if in.Key == "" {
		return editAnswer{}, errors.New("the task names no key")
	}
	var change func(map[string]any)
	switch in.Action {
	case "UPSERT":
		change = func(data map[string]any) { data[in.Key] = in.Value }
	case "DELETE":
		change = func(data map[string]any) { delete(data, in.Key) }
	default:
		return editAnswer{}, fmt.Errorf("the action %q is neither UPSERT nor DELETE", in.Action)
	}
	edit := editV1
	switch in.EngineVersion {
	case 2:
		edit = editV2
	case 0, 1:
	default:
		return editAnswer{}, fmt.Errorf("there is no version %d of the engine", in.EngineVersion)
	}
	err = in.Config.with(ctx, own, func(c *api.Client) error { return edit(ctx, c, mount, name, change) })
	if err != nil {
		return editAnswer{}, fmt.Errorf("%s %s/%s: %w", in.Action, mount, name, err)
	}
	return editAnswer{Name: name, Status: "SUCCESS"}, nil
}

func editV1(ctx context.Context, c *api.Client, mount, name string, change func(map[string]any)) error {
	data, err := readRaw(ctx, c, mount+"/"+name, nil)
	if err != nil && !errors.Is(err, secrets.ErrNotFound) {
		return err
	}
	if data == nil {
		data = map[string]any{}
	}
	if change(data); len(data) == 0 {
		_, err = c.Logical().DeleteWithContext(ctx, mount+"/"+name)
	} else {
		_, err = c.Logical().WriteWithContext(ctx, mount+"/"+name, data)
	}
	return err
}

// editV2 writes the version after the one that it has read, or fails: somebody
// else's change in between is not lost.
func editV2(ctx context.Context, c *api.Client, mount, name string, change func(map[string]any)) error {
	s, err := c.Logical().ReadWithContext(ctx, mount+"/data/"+name)
	if err != nil {
		return err
	}
	data, cas := map[string]any{}, any(0)
	if s != nil && s.Data != nil {
		if d, ok := s.Data["data"].(map[string]any); ok {
			data = d
		}
		if m, ok := s.Data["metadata"].(map[string]any); ok {
			cas = m["version"]
		}
	}
	if change(data); len(data) == 0 {
		_, err = c.Logical().DeleteWithContext(ctx, mount+"/metadata/"+name)
		return err
	}
	_, err = c.Logical().WriteWithContext(ctx, mount+"/data/"+name, map[string]any{
		"data": data, "options": map[string]any{"cas": cas},
	})
	return err
}
