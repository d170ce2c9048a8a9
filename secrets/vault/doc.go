// Package vault fetches secrets from HashiCorp Vault, from the key-value engine
// of either version (SPEC S1).
//
//	p, err := vault.New(vault.Config{
//		Address: "https://vault.example.com:8200",
//		AppRole: &vault.AppRole{RoleID: "...", SecretIDFile: "/run/secrets/wrapped", Wrapped: true},
//	})
//	defer p.Close()
//	go p.Keep(ctx) // renews the token
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{vault.Scheme: p}}
//
// # References
//
//	${{secrets.vault://<mount>/<path>#<field>}}
//	${{secrets.vault://secret/team/db#password}}
//	${{secrets.vault://secret/team/db?version=3#password}}
//
// The path is as "vault kv get" takes it, without the "data" that version 2 of
// the engine has in its API. Which part of it is the mount, and which version it
// has, is asked of the server. The field may be left out when the secret has just
// one; dots lead into a field that is an object, see [secrets.Field]. Without
// version it is the newest; a version that is deleted or destroyed is not found.
// Other engines are refused: what they create has a lease, which nobody would end.
//
// # Login
//
// A token, from the configuration or from a file, or an AppRole, whose secret id
// may be wrapped: it is unwrapped once, and kept in memory for later logins. Files
// are read anew at each login, a token file also when the server refuses the last
// token; they are read up to 4 KiB. A token is renewed when two thirds of its
// time have passed and it is used, or by Keep; when that fails and it has expired
// or was revoked, the next call logs in again.
//
// The environment variables of Vault's own tools, such as VAULT_TOKEN, are not
// used. VAULT_HEADERS, VAULT_RATE_LIMIT and the like, which its library reads,
// are better not set.
//
// Start reading at provider.go; tasks.go has the secret tasks of PROTOCOL 2.
package vault
