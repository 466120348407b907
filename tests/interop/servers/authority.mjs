// An authorization server that others wrote: npm's oidc-provider, with its own pages for the login and the consent.
//
//     authority.mjs PORT NODE_MODULES MARK REDIRECT_URI...
//
// Access tokens last an hour. The client "machine" may use the grant of client credentials, "resource" may ask after
// tokens, and "proxy" is redirected to the REDIRECT_URIs. Proofs of DPoP need a nonce.

import { pathToFileURL } from "node:url";

const [port, modules] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`).href);
const issuer = `http://127.0.0.1:${port}/`; // FastMCP names no other: it adds the slash, and issuers must be identical

const known = { redirect_uris: [], response_types: [] };
const provider = new Provider(issuer, {
    clients: [
        { ...known, client_id: "machine", client_secret: "the secret of the machine", grant_types: ["client_credentials"] },
        { ...known, client_id: "resource", client_secret: "the secret of the resource", grant_types: [] },
        {
            client_id: "proxy",
            client_secret: "the secret of the proxy",
            redirect_uris: process.argv.slice(5),
            grant_types: ["authorization_code", "refresh_token"],
        },
    ],
    clientAuthMethods: ["none", "client_secret_basic", "client_secret_post"],
    cookies: { keys: ["a key for the cookies of tests"] },
    findAccount: (ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    scopes: ["openid", "offline_access"],
    rotateRefreshToken: true,
    pkce: { required: () => true },
    features: {
        clientCredentials: { enabled: true },
        deviceFlow: { enabled: true },
        dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 7), requireNonce: () => true },
        introspection: { enabled: true },
        registration: { enabled: true },
        revocation: { enabled: true },
        resourceIndicators: {
            enabled: true,
            getResourceServerInfo: (ctx, resource) => ({
                scope: "read write",
                audience: resource,
                accessTokenFormat: "opaque",
                accessTokenTTL: 3600,
            }),
        },
    },
});

provider.on("grant.success", (ctx) => console.log("grant.success", ctx.oidc.params.grant_type));
for (const event of ["authorization.error", "grant.error", "registration_create.error", "introspection.error", "server_error"]) {
    provider.on(event, (ctx, error) => console.log(event, error.error, error.error_description, error.error_detail ?? ""));
}

provider.listen(Number(port), "127.0.0.1", () => console.log(`authority listens on ${port}`));
