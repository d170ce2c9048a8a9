// Package vault fetches secrets from the key-value engine of HashiCorp Vault, version
// 1 or 2 (rule S1).
//
//	p, err := vault.New(vault.Config{
//		Address: "https://vault.example.com:8200",
//		AppRole: &vault.AppRole{RoleID: "...", SecretIDFile: "/run/secrets/wrapped", Wrapped: true},
//	})
//	defer p.Close()
//	go p.RenewToken(ctx)
//	cfg := secrets.ResolverConfig{Providers: secrets.Providers{"vault": p}}
//
// # References
//
//	${{secrets.vault://<mount>/<path>#<field>}}
//	${{secrets.vault://secret/team/db#password}}
//	${{secrets.vault://secret/team/db?version=3#password}}
//
// The path has the form of "vault kv get": without the "data" that the API of version
// 2 has. The provider asks the server which part of the path is the mount, and which
// version the engine has. If the secret has only one field, the reference may omit
// it. Dots in a field select members of an object, see [secrets.Field]. Without a
// version, the newest one counts. A deleted or destroyed version is not found. The
// provider refuses other engines: their secrets have leases, which it would not end.
//
// # Login
//
// The provider uses a token, a token file or an AppRole. The secret id of an AppRole
// may be wrapped. The provider unwraps it once and keeps it in memory for later
// logins. It reads a file again at each login, and a token file also if the server
// refuses the token. A file has at most 4 KiB. The provider renews a token after two
// thirds of its time to live, when a task uses the token or in RenewToken. If the
// renewal fails and the token has expired or was revoked, the next call logs in again.
//
// The provider ignores the environment variables of the tools of Vault, such as
// VAULT_TOKEN. Do not set VAULT_HEADERS, VAULT_RATE_LIMIT and similar variables: the
// library of Vault reads them.
//
// To read the code, start at provider.go. tasks.go has the handlers of secret tasks
// (docs/protocol.md, section 2).
package vault
