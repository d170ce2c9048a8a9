package kubernetes

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// The generated client links the types of all API groups and their encodings: 15 MB of a
// program. The driver needs few kinds of one group, and JSON.

// scheme knows the kinds of the core group.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	return s
}()

// parameters encodes the options of a request.
var parameters = runtime.NewParameterCodec(scheme)

// jsonCodec encodes and decodes objects of the scheme without conversion between versions.
type jsonCodec struct{ *json.Serializer }

func newJSONCodec() jsonCodec {
	return jsonCodec{json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{})}
}

// SupportedMediaTypes implements [runtime.NegotiatedSerializer].
func (c jsonCodec) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer:       c.Serializer,
		StreamSerializer: &runtime.StreamSerializerInfo{EncodesAsText: true, Serializer: c.Serializer, Framer: json.Framer},
	}}
}

// EncoderForVersion implements [runtime.NegotiatedSerializer]. The encoder sets the kind of
// an object, which its Go value does not have.
func (jsonCodec) EncoderForVersion(e runtime.Encoder, v runtime.GroupVersioner) runtime.Encoder {
	return runtime.WithVersionEncoder{Version: v, Encoder: e, ObjectTyper: scheme}
}

// DecoderToVersion implements [runtime.NegotiatedSerializer].
func (jsonCodec) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return runtime.WithoutVersionDecoder{Decoder: d}
}

// api is a client of the core group.
type api struct{ rest.Interface }

func newAPI(rc *rest.Config, hc *http.Client) (api, error) {
	c := rest.CopyConfig(rc)
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = newJSONCodec()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientForConfigAndClient(c, hc)
	return api{client}, err
}

func (a api) pods(namespace string) *objects[corev1.Pod, corev1.PodList] {
	return &objects[corev1.Pod, corev1.PodList]{a, namespace, "pods"}
}

func (a api) secrets(namespace string) *objects[corev1.Secret, corev1.SecretList] {
	return &objects[corev1.Secret, corev1.SecretList]{a, namespace, "secrets"}
}

func (a api) services(namespace string) *objects[corev1.Service, corev1.ServiceList] {
	return &objects[corev1.Service, corev1.ServiceList]{a, namespace, "services"}
}

func (a api) configMaps(namespace string) *objects[corev1.ConfigMap, corev1.ConfigMapList] {
	return &objects[corev1.ConfigMap, corev1.ConfigMapList]{a, namespace, "configmaps"}
}

func (a api) events(namespace string) *objects[corev1.Event, corev1.EventList] {
	return &objects[corev1.Event, corev1.EventList]{a, namespace, "events"}
}

// objects has the calls for one kind of objects, O, in a namespace. L is its list.
type objects[O, L any] struct {
	client    rest.Interface
	namespace string
	resource  string
}

// on adds the objects to the path of a request.
func (o *objects[O, L]) on(r *rest.Request) *rest.Request {
	return r.Namespace(o.namespace).Resource(o.resource)
}

// answer sends a request whose answer is an object.
func (o *objects[O, L]) answer(ctx context.Context, r *rest.Request) (*O, error) {
	made := new(O)
	if err := r.Do(ctx).Into(object(made)); err != nil {
		return nil, err
	}
	return made, nil
}

// object returns a pointer to an object or to a list of the core group.
func object(pointer any) runtime.Object { return pointer.(runtime.Object) }

func (o *objects[O, L]) get(ctx context.Context, name string) (*O, error) {
	return o.answer(ctx, o.on(o.client.Get()).Name(name))
}

func (o *objects[O, L]) create(ctx context.Context, wanted *O) (*O, error) {
	return o.answer(ctx, o.on(o.client.Post()).Body(object(wanted)))
}

func (o *objects[O, L]) update(ctx context.Context, name string, wanted *O) (*O, error) {
	return o.answer(ctx, o.on(o.client.Put()).Name(name).Body(object(wanted)))
}

// patch applies a strategic merge patch to an object or to a subresource of it.
func (o *objects[O, L]) patch(ctx context.Context, name string, patch []byte, subresource string) (*O, error) {
	return o.answer(ctx, o.on(o.client.Patch(types.StrategicMergePatchType)).Name(name).SubResource(subresource).Body(patch))
}

func (o *objects[O, L]) delete(ctx context.Context, name string) error {
	return o.on(o.client.Delete()).Name(name).Body(&metav1.DeleteOptions{}).Do(ctx).Error()
}

func (o *objects[O, L]) list(ctx context.Context, options metav1.ListOptions) (*L, error) {
	found := new(L)
	err := o.on(o.client.Get()).VersionedParams(&options, parameters).Timeout(timeout(options)).Do(ctx).Into(object(found))
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (o *objects[O, L]) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return o.on(o.client.Get()).VersionedParams(&options, parameters).Timeout(timeout(options)).Watch(ctx)
}

// timeout returns the time that the options allow a request, or 0.
func timeout(o metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*o.TimeoutSeconds) * time.Second
}
