// Command oidc is a service for sign-ins by OpenID Connect, for tests. It is the example server of the module
// zitadel/oidc, with users who have groups. It prints the address of the service and serves until it is killed.
//
// It has its own module: no user of this project needs these requirements.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	clientID   = "page"
	fakeSecret = "not-a-real-secret"
)

// groups are the groups of the users. Each user's password is not-a-real-password.
var groups = map[string][]string{"ada": {"builders"}, "grace": {"operators"}, "eve": {}}

func main() {
	page := flag.String("page", "", "address of the page, with a final slash")
	flag.Parse()
	if err := serve(*page); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(page string) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := "http://" + listener.Addr().String() + "/"
	storage.RegisterClients(storage.WebClient(clientID, fakeSecret, page+"signin/callback"))
	known := &store{Storage: storage.NewStorage(users{}), page: page}
	handler := exampleop.SetupServer(issuer, known, slog.New(slog.DiscardHandler), false)
	if _, err := fmt.Println(issuer); err != nil {
		return err
	}
	server := http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}

// users are the users of the service.
type users struct{}

func (users) GetUserByID(id string) *storage.User {
	if _, known := groups[id]; !known {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: "not-a-real-password", Email: id + "@example.test", EmailVerified: true}
}

func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }

func (users) ExampleClientID() string { return clientID }

// store adds the groups of users, and the address after a sign-out.
type store struct {
	*storage.Storage
	page string
}

func (s *store) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	if err := s.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin); err != nil {
		return err
	}
	info.AppendClaims("groups", groups[subject])
	return nil
}

func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	return &client{c, s.page}, err
}

type client struct {
	op.Client
	page string
}

func (c *client) PostLogoutRedirectURIs() []string { return []string{c.page} }
