package secrets_test

import (
	"context"
	"fmt"
	"net/url"

	"github.com/delegate-io/dlite/secrets"
)

func ExampleResolver() {
	set := secrets.NewSet(secrets.Config{})
	r := secrets.NewResolver(set, secrets.ResolverConfig{})
	_ = r.Define("password", "not a \"real\" one")

	data, err := r.Resolve(context.Background(),
		[]byte(`{"id": 12345678901234567890, "login": "admin:${{secrets.password}}", "basic": "<{ admin:${{secrets.password}} | getAsBase64 }>"}`))
	fmt.Println(string(data), err)
	fmt.Println(set.Mask(string(data)))
	_, err = r.Resolve(context.Background(), []byte(`"${{secrets.passwort}}"`))
	fmt.Println(err)
	// Output:
	// {"id": 12345678901234567890, "login": "admin:not a \"real\" one", "basic": "YWRtaW46bm90IGEgInJlYWwiIG9uZQ=="} <nil>
	// {"id": 12345678901234567890, "login": "admin:******", "basic": "******"}
	// secret reference ${{secrets.passwort}}: there is no such secret
}

// A provider can be one function. The key in the map is the scheme of its references.
func ExampleProviders() {
	keyring := secrets.ProviderFunc(func(_ context.Context, ref *url.URL) (string, error) {
		if ref.Host != "db" {
			return "", secrets.ErrNotFound
		}
		return secrets.Field(`{"user":"app","password":"not-a-real-one"}`, ref.Fragment)
	})
	r := secrets.NewResolver(secrets.NewSet(secrets.Config{}), secrets.ResolverConfig{
		Providers: secrets.Providers{"keyring": keyring},
	})
	data, err := r.Resolve(context.Background(), []byte(`["${{secrets.keyring://db#user}}","${{secrets.keyring://db#password}}"]`))
	fmt.Println(string(data), err)
	_, err = r.Resolve(context.Background(), []byte(`"${{secrets.keyring://queue#user}}"`))
	fmt.Println(err)
	// Output:
	// ["app","not-a-real-one"] <nil>
	// secret reference ${{secrets.keyring://queue#user}}: there is no such secret
}
