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

// Routes returns the handlers for tasks of the types "secret/vault/fetch" and
// "secret/vault/edit". own serves tasks without an address; it may be nil.
//
// The payloads are those of other runners, as far as they are public. A config has the
// form
//
//	{"address", "namespace", "token", "role_id", "secret_id", "approle_mount"}
//
// The last three members are for an AppRole; their names are an assumption. A fetch
// task has one secret. Its path is a path of the API ("secret/data/app" in version 2
// of the engine). If base64 is true, the handler decodes the value:
//
//	{"secrets": [{"config", "path", "key", "base64"}]} -> {"id", "value"}
//
// An edit task changes one key of a secret and does not change the others. Its path is
// relative to the engine. UPSERT writes the key. DELETE removes the key; if it was the
// last one, DELETE removes the secret with all its versions:
//
//	{"action", "config", "engine_name", "engine_version", "path", "key", "value"} -> {"name", "status"}
//
// The status is SUCCESS. If something fails, the task fails.
func Routes(own *Provider) map[string]http.Handler {
	return map[string]http.Handler{
		fetchType: secrettask.Handle(func(ctx context.Context, in fetchTask) (secrets.Secret, error) { return in.fetch(ctx, own) }),
		editType:  secrettask.Handle(func(ctx context.Context, in editTask) (editAnswer, error) { return in.edit(ctx, own) }),
	}
}

// target is the Vault server of a task.
type target struct {
	Address   string `json:"address"`
	Namespace string `json:"namespace"`
	Token     string `json:"token"`
	RoleID    string `json:"role_id"`
	SecretID  string `json:"secret_id"`
	Mount     string `json:"approle_mount"`
}

// addCredentials adds the credentials to the secrets of the task in ctx.
func (t *target) addCredentials(ctx context.Context) {
	if t != nil {
		secrets.FromContext(ctx).Add(t.Token, t.SecretID)
	}
}

// withClient calls f with a client for the target.
func (t *target) withClient(ctx context.Context, own *Provider, f func(*api.Client) error) error {
	if t == nil || *t == (target{}) {
		if own == nil {
			return errors.New("the task names no Vault, and this delegate has none")
		}
		return own.withClient(ctx, f)
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
	return p.withClient(ctx, f)
}

type fetchTask struct {
	Secrets []struct {
		Config *target `json:"config"`
		Path   string  `json:"path"`
		Key    string  `json:"key"`
		Base64 bool    `json:"base64"`
	} `json:"secrets"`
}

func (in *fetchTask) fetch(ctx context.Context, own *Provider) (out secrets.Secret, err error) {
	if len(in.Secrets) != 1 {
		return out, fmt.Errorf("a Vault task must have one secret, this one has %d", len(in.Secrets))
	}
	s := in.Secrets[0]
	s.Config.addCredentials(ctx)
	name, err := cleanPath(s.Path)
	if err != nil {
		return out, err
	}
	err = s.Config.withClient(ctx, own, func(c *api.Client) error {
		data, err := readPath(ctx, c, name, nil)
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

// cleanPath returns the path without outer slashes. It refuses ".." and empty parts.
func cleanPath(name string) (string, error) {
	name = strings.Trim(name, "/")
	if name == "" || path.Clean("/"+name) != "/"+name {
		return "", fmt.Errorf("%q is not the path of a secret", name)
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

func (in *editTask) edit(ctx context.Context, own *Provider) (editAnswer, error) {
	secrets.FromContext(ctx).Add(in.Value)
	in.Config.addCredentials(ctx)
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
	write := editV1
	switch in.EngineVersion {
	case 2:
		write = editV2
	case 0, 1:
	default:
		return editAnswer{}, fmt.Errorf("there is no version %d of the engine", in.EngineVersion)
	}
	err = in.Config.withClient(ctx, own, func(c *api.Client) error { return write(ctx, c, mount, name, change) })
	if err != nil {
		return editAnswer{}, fmt.Errorf("%s %s/%s: %w", in.Action, mount, name, err)
	}
	return editAnswer{Name: name, Status: "SUCCESS"}, nil
}

// editV1 changes a secret in an engine of version 1.
func editV1(ctx context.Context, c *api.Client, mount, name string, change func(map[string]any)) error {
	data, err := readPath(ctx, c, mount+"/"+name, nil)
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

// editV2 writes the next version after the one that it has read. If another client has
// written a version in between, editV2 fails, so that no change is lost.
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
