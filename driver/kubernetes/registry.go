package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegate-io/dlite/task/stage"
)

// registries is the content of a Secret with credentials for registries.
type registries struct {
	Auths map[string]registryAuth `json:"auths"`
}

type registryAuth struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// Auth is "username:password" in base64, as other programs write it.
	Auth string `json:"auth,omitempty"`
}

// dockerHub is the key of the registry of Docker in such a Secret.
const dockerHub = "https://index.docker.io/v1/"

// credentials stores the registry credentials of the announced steps for the pod. Without
// credentials it creates nothing.
func (p *pod) credentials(ctx context.Context, owner *corev1.Pod, steps []*stage.Step) error {
	auths := map[string]registryAuth{}
	for _, step := range steps {
		if step != nil {
			maps.Copy(auths, authOf(step.Auth, step.Image))
		}
	}
	if len(auths) == 0 {
		return nil
	}
	return p.addCredentials(ctx, owner, auths)
}

// authOf returns the credentials with their registry, or else the registry of the image.
func authOf(a *stage.Auth, image string) map[string]registryAuth {
	if a == nil || a.Username == "" && a.Password == "" {
		return nil
	}
	address := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(a.Address, "https://"), "http://"), "/")
	if address == "" {
		address = registryOf(image)
	}
	if host, _, _ := strings.Cut(address, "/"); host == "docker.io" || host == "index.docker.io" || host == "registry-1.docker.io" {
		address = dockerHub
	}
	return map[string]registryAuth{address: {Username: a.Username, Password: a.Password}}
}

// registryOf returns the registry in the name of an image.
func registryOf(image string) string {
	first, _, ok := strings.Cut(image, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first
	}
	return "docker.io"
}

// addCredentials adds credentials to the Secret of the pod. The pod owns the Secret, so the
// cluster deletes both together, also without the delegate.
func (p *pod) addCredentials(ctx context.Context, owner *corev1.Pod, auths map[string]registryAuth) error {
	p.secret.Lock() // held during calls on purpose: one change at a time
	defer p.secret.Unlock()
	secrets := p.d.api.secrets(p.namespace)
	for range 5 {
		old, err := secrets.get(ctx, p.name)
		if err != nil && !isGone(err) {
			return fmt.Errorf("credentials of registries: %w", refusal(p.key(), err))
		}
		known := registries{Auths: map[string]registryAuth{}}
		if err == nil {
			if err := json.Unmarshal(old.Data[corev1.DockerConfigJsonKey], &known); err != nil || known.Auths == nil {
				known.Auths = map[string]registryAuth{}
			}
		}
		changed := false
		for k, v := range auths {
			changed = changed || known.Auths[k] != v
			known.Auths[k] = v
		}
		if err == nil && !changed {
			return nil
		}
		content, marshalErr := json.Marshal(known)
		if marshalErr != nil {
			return marshalErr
		}
		if err == nil {
			old.Data = map[string][]byte{corev1.DockerConfigJsonKey: content}
			_, err = secrets.update(ctx, p.name, old)
		} else {
			_, err = secrets.create(ctx, p.newSecret(owner, content))
		}
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("credentials of registries: %w", refusal(p.key(), err))
		}
	}
	return fmt.Errorf("credentials of registries: other clients keep changing the secret %s", p.key())
}

func (p *pod) newSecret(owner *corev1.Pod, content []byte) *corev1.Secret {
	yes := true
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.name, Namespace: p.namespace, Labels: owner.Labels, Annotations: owner.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID, Controller: &yes,
			}},
		},
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: content},
	}
}
