"""24 kernels: products of several tensors, small and grouped ones, norms, windows, gathers."""

from __future__ import annotations

from benchmarks.hand.entry import Entry

DISTANCES = """kernel k(X: float[256,48], Z: float[192,48]) -> (D: float[256,192]) {
  D[i,j] = sqrt(sum[c]((X[i,c] - Z[j,c]) * (X[i,c] - Z[j,c])));
}"""
SOFTMAX = """kernel k(X: float[512,512]) -> (Y: float[512,512]) {
  M<512>[i] = max[j](X[i,j]);
  E<512,512>[i,j] = exp(X[i,j] - M[i]);
  S<512>[i] = E[i,j];
  Y[i,j] = E[i,j] / S[i];
}"""
LAYER_NORM = """kernel k(X: float[512,512], G: float[512], B: float[512]) -> (Y: float[512,512]) {
  M<512>[i] = X[i,j] / 512;
  V<512>[i] = (X[i,j] - M[i]) * (X[i,j] - M[i]) / 512;
  Y[i,j] = (X[i,j] - M[i]) / sqrt(V[i] + 0.00001) * G[j] + B[j];
}"""
RMS_NORM = """kernel k(X: float[512,512], G: float[512]) -> (Y: float[512,512]) {
  Y[i,j] = X[i,j] / sqrt(sum[c](X[i,c] * X[i,c]) / 512 + 0.00001) * G[j];
}"""
GROUP_NORM = """kernel k(X: float[8,8,4,256], G: float[8,4], B: float[8,4]) -> (Y: float[8,8,4,256]) {
  M<8,8>[n,g] = X[n,g,c,p] / 1024;
  V<8,8>[n,g] = (X[n,g,c,p] - M[n,g]) * (X[n,g,c,p] - M[n,g]) / 1024;
  Y[n,g,c,p] = (X[n,g,c,p] - M[n,g]) / sqrt(V[n,g] + 0.00001) * G[g,c] + B[g,c];
}"""
LOG_SUM_EXP = """kernel k(X: float[512,512]) -> (L: float[512]) {
  L[i] = max[j](X[i,j]) + log(sum[j](exp(X[i,j] - max[c](X[i,c]))));
}"""
COSINE = """kernel k(X: float[1024,128], Z: float[1024,128]) -> (C: float[1024]) {
  C[i] = sum[j](X[i,j] * Z[i,j]) / sqrt(sum[j](X[i,j] * X[i,j]) * sum[j](Z[i,j] * Z[i,j]));
}"""
GELU = """kernel k(X: float[256,1024], B: float[1024], G: float[256,1024]) -> (Y: float[256,1024]) {
  T<256,1024>[i,j] = X[i,j] + B[j];
  Y[i,j] = 0.5 * T[i,j] * (1 + tanh(0.7978845608 * (T[i,j] + 0.044715 * T[i,j] * T[i,j] * T[i,j]))) * G[i,j];
}"""
CONVOLUTION = """kernel k(X: float[16,34,34], W: float[32,16,3,3]) -> (Y: float[32,32,32]) {
  Y[f,y,x] = X[c,y+r,x+s] * W[f,c,r,s];
}"""
GROUPED = """kernel k(X: float[8,4,34,34], W: float[8,4,4,3,3]) -> (Y: float[8,4,32,32]) {
  Y[g,f,y,x] = X[g,c,y+r,x+s] * W[g,f,c,r,s];
}"""
DEPTHWISE = """kernel k(X: float[64,34,34], W: float[64,3,3]) -> (Y: float[64,32,32]) {
  Y[c,y,x] = X[c,y+r,x+s] * W[c,r,s];
}"""
BATCHED = """kernel k(A: float[4096,4,4], B: float[4096,4,4]) -> (C: float[4096,4,4]) {
  C[b,i,j] = A[b,i,l] * B[b,l,j];
}"""
TUCKER = """kernel k(G: float[8,8,8], A: float[32,8], B: float[32,8], C: float[32,8]) -> (Y: float[32,32,32]) {
  Y[a,b,c] = G[i,j,l] * A[a,i] * B[b,j] * C[c,l];
}"""
ATTENTION = """kernel k(Q: float[4,128,32], K: float[4,128,32], V: float[4,128,32]) -> (Y: float[4,128,32]) {
  S<4,128,128>[h,i,j] = 0.1767766953 * Q[h,i,d] * K[h,j,d];
  M<4,128>[h,i] = max[j](S[h,i,j]);
  E<4,128,128>[h,i,j] = exp(S[h,i,j] - M[h,i]);
  T<4,128>[h,i] = E[h,i,j];
  Y[h,i,d] = E[h,i,j] / T[h,i] * V[h,j,d];
}"""
IM2COL = """kernel k(X: float[16,34,34]) -> (A: float[1024,144]) {
  A[p,q] = X[q//9, p//32 + q%9//3, p%32 + q%3];
}"""
SCORES = """kernel k(Q: float[256,64], K: float[256,64]) -> (S: float[256,256]) {
  S[i,j] = 0.125 * sum[c](Q[i,c] * K[j,c]);
}"""
CHAIN = """kernel k(A: float[128,16], B: float[16,128], C: float[128,128]) -> (Y: float[128,128]) {
  Y[i,j] = A[i,l] * B[l,m] * C[m,j];
}"""

FORWARD = (
    Entry(
        "pairwise distances",
        DISTANCES,
        """for (int i = 0; i < 256; i++) for (int j = 0; j < 192; j++) {
    float s = 0; for (int c = 0; c < 48; c++) { float d = X[i][c] - Z[j][c]; s += d * d; }
    D[i][j] = sqrtf(s);
  }""",
        "torch.cdist(X, Z)",
    ),
    Entry(
        "im2col by // and %",
        IM2COL,
        """for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) for (int c = 0; c < 16; c++)
    for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++)
      A[y * 32 + x][c * 9 + r * 3 + s] = X[c][y + r][x + s];""",
        "F.unfold(X[None], 3)[0].T.contiguous()",
    ),
    Entry(
        "softmax",
        SOFTMAX,
        """for (int i = 0; i < 512; i++) {
    float m = X[i][0], s = 0;
    for (int j = 1; j < 512; j++) if (X[i][j] > m) m = X[i][j];
    for (int j = 0; j < 512; j++) { Y[i][j] = expf(X[i][j] - m); s += Y[i][j]; }
    for (int j = 0; j < 512; j++) Y[i][j] /= s;
  }""",
        "torch.softmax(X, 1)",
    ),
    Entry(
        "layer norm",
        LAYER_NORM,
        """for (int i = 0; i < 512; i++) {
    float m = 0, v = 0;
    for (int j = 0; j < 512; j++) m += X[i][j];
    m /= 512;
    for (int j = 0; j < 512; j++) v += (X[i][j] - m) * (X[i][j] - m);
    v = 1 / sqrtf(v / 512 + 0.00001f);
    for (int j = 0; j < 512; j++) Y[i][j] = (X[i][j] - m) * v * G[j] + B[j];
  }""",
        "F.layer_norm(X, (512,), G, B, 1e-5)",
    ),
    Entry(
        "RMS norm",
        RMS_NORM,
        """for (int i = 0; i < 512; i++) {
    float v = 0;
    for (int j = 0; j < 512; j++) v += X[i][j] * X[i][j];
    v = 1 / sqrtf(v / 512 + 0.00001f);
    for (int j = 0; j < 512; j++) Y[i][j] = X[i][j] * v * G[j];
  }""",
        "F.rms_norm(X, (512,), G, 1e-5)",
    ),
    Entry(
        "group norm",
        GROUP_NORM,
        """for (int n = 0; n < 8; n++) for (int g = 0; g < 8; g++) {
    float m = 0, v = 0;
    for (int c = 0; c < 4; c++) for (int p = 0; p < 256; p++) m += X[n][g][c][p];
    m /= 1024;
    for (int c = 0; c < 4; c++) for (int p = 0; p < 256; p++) v += (X[n][g][c][p] - m) * (X[n][g][c][p] - m);
    v = 1 / sqrtf(v / 1024 + 0.00001f);
    for (int c = 0; c < 4; c++) for (int p = 0; p < 256; p++)
      Y[n][g][c][p] = (X[n][g][c][p] - m) * v * G[g][c] + B[g][c];
  }""",
        "F.group_norm(X.reshape(8, 32, 256), 8, G.reshape(32), B.reshape(32), 1e-5).reshape(X.shape)",
    ),
    Entry(
        "log-sum-exp",
        LOG_SUM_EXP,
        """for (int i = 0; i < 512; i++) {
    float m = X[i][0], s = 0;
    for (int j = 1; j < 512; j++) if (X[i][j] > m) m = X[i][j];
    for (int j = 0; j < 512; j++) s += expf(X[i][j] - m);
    L[i] = m + logf(s);
  }""",
        "torch.logsumexp(X, 1)",
    ),
    Entry(
        "cosine similarity",
        COSINE,
        """for (int i = 0; i < 1024; i++) {
    float p = 0, a = 0, b = 0;
    for (int j = 0; j < 128; j++) { p += X[i][j] * Z[i][j]; a += X[i][j] * X[i][j]; b += Z[i][j] * Z[i][j]; }
    C[i] = p / sqrtf(a * b);
  }""",
        "F.cosine_similarity(X, Z, 1)",
    ),
    Entry(
        "bias, GELU, gate",
        GELU,
        """for (int i = 0; i < 256; i++) for (int j = 0; j < 1024; j++) {
    float t = X[i][j] + B[j];
    Y[i][j] = 0.5f * t * (1 + tanhf(0.7978845608f * (t + 0.044715f * t * t * t))) * G[i][j];
  }""",
        'F.gelu(X + B, approximate="tanh") * G',
    ),
    Entry(
        "convolution",
        CONVOLUTION,
        """for (int f = 0; f < 32; f++) {
    for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) Y[f][y][x] = 0;
    for (int c = 0; c < 16; c++) for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++)
      for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) Y[f][y][x] += X[c][y + r][x + s] * W[f][c][r][s];
  }""",
        "torch.conv2d(X[None], W)[0]",
    ),
    Entry(
        "grouped convolution",
        GROUPED,
        """for (int g = 0; g < 8; g++) for (int f = 0; f < 4; f++) {
    for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) Y[g][f][y][x] = 0;
    for (int c = 0; c < 4; c++) for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++)
      for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++)
        Y[g][f][y][x] += X[g][c][y + r][x + s] * W[g][f][c][r][s];
  }""",
        "torch.conv2d(X.reshape(1, 32, 34, 34), W.reshape(32, 4, 3, 3), groups=8).reshape(8, 4, 32, 32)",
    ),
    Entry(
        "depthwise convolution",
        DEPTHWISE,
        """for (int c = 0; c < 64; c++) for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) {
    float t = 0;
    for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++) t += X[c][y + r][x + s] * W[c][r][s];
    Y[c][y][x] = t;
  }""",
        "torch.conv2d(X[None], W[:, None], groups=64)[0]",
    ),
    Entry(
        "max pooling",
        """kernel k(X: float[64,32,2,32,2]) -> (Y: float[64,32,32]) {
  Y[c,y,x] = max[r,s](X[c,y,r,x,s]);
}""",
        """for (int c = 0; c < 64; c++) for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) {
    float m = X[c][y][0][x][0];
    for (int r = 0; r < 2; r++) for (int s = 0; s < 2; s++) if (X[c][y][r][x][s] > m) m = X[c][y][r][x][s];
    Y[c][y][x] = m;
  }""",
        "F.max_pool2d(X.reshape(64, 64, 64), 2)",
    ),
    Entry(
        "bilinear resampling",
        """kernel k(X: float[16,48,48], I: int[96], U: float[96], J: int[96], V: float[96]) -> (Y: float[16,96,96]) {
  Y[c,y,x] = (1 - U[y]) * ((1 - V[x]) * X[c,I[y],J[x]] + V[x] * X[c,I[y],J[x]+1])
           + U[y] * ((1 - V[x]) * X[c,I[y]+1,J[x]] + V[x] * X[c,I[y]+1,J[x]+1]);
}""",
        """for (int c = 0; c < 16; c++) for (int y = 0; y < 96; y++) for (int x = 0; x < 96; x++) {
    const float *p = X[c][I[y]], *q = X[c][I[y] + 1];
    Y[c][y][x] = (1 - U[y]) * ((1 - V[x]) * p[J[x]] + V[x] * p[J[x] + 1])
               + U[y] * ((1 - V[x]) * q[J[x]] + V[x] * q[J[x] + 1]);
  }""",
        """(1 - U)[:, None] * ((1 - V) * X[:, I][:, :, J] + V * X[:, I][:, :, J + 1])
        + U[:, None] * ((1 - V) * X[:, I + 1][:, :, J] + V * X[:, I + 1][:, :, J + 1])""",
        below=47,
    ),
    Entry(
        "sparse rows",
        """kernel k(V: float[4096,32], C: int[4096,32], X: float[8192]) -> (Y: float[4096]) {
  Y[i] = V[i,l] * X[C[i,l]];
}""",
        """for (int i = 0; i < 4096; i++) {
    float s = 0;
    for (int l = 0; l < 32; l++) s += V[i][l] * X[C[i][l]];
    Y[i] = s;
  }""",
        "(V * X[C]).sum(1)",
        below=8192,
    ),
    Entry(
        "sum of embeddings",
        """kernel k(E: float[1000,64], I: int[512,16]) -> (Y: float[512,64]) {
  Y[b,d] = E[I[b,l],d];
}""",
        """for (int b = 0; b < 512; b++) {
    for (int d = 0; d < 64; d++) Y[b][d] = 0;
    for (int l = 0; l < 16; l++) for (int d = 0; d < 64; d++) Y[b][d] += E[I[b][l]][d];
  }""",
        'F.embedding_bag(I, E, mode="sum")',
        below=1000,
    ),
    Entry(
        "batched 4x4 products",
        BATCHED,
        """for (int b = 0; b < 4096; b++) for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) {
    float s = 0;
    for (int l = 0; l < 4; l++) s += A[b][i][l] * B[b][l][j];
    C[b][i][j] = s;
  }""",
        "torch.bmm(A, B)",
    ),
    Entry(
        "batched matrix times vector",
        """kernel k(A: float[256,32,32], X: float[256,32]) -> (Y: float[256,32]) {
  Y[b,i] = A[b,i,j] * X[b,j];
}""",
        """for (int b = 0; b < 256; b++) for (int i = 0; i < 32; i++) {
    float s = 0;
    for (int j = 0; j < 32; j++) s += A[b][i][j] * X[b][j];
    Y[b][i] = s;
  }""",
        "torch.bmm(A, X[:, :, None])[:, :, 0]",
    ),
    Entry(
        "outer product added",
        """kernel k(A: float[512,512], X: float[512], Z: float[512]) -> (Y: float[512,512]) {
  Y[i,j] = A[i,j] + 0.5 * X[i] * Z[j];
}""",
        """for (int i = 0; i < 512; i++) for (int j = 0; j < 512; j++) Y[i][j] = A[i][j] + 0.5f * X[i] * Z[j];""",
        "torch.addr(A, X, Z, alpha=0.5)",
    ),
    Entry(
        "scaled scores",
        SCORES,
        """for (int i = 0; i < 256; i++) for (int j = 0; j < 256; j++) {
    float s = 0;
    for (int c = 0; c < 64; c++) s += Q[i][c] * K[j][c];
    S[i][j] = 0.125f * s;
  }""",
        "0.125 * (Q @ K.T)",
    ),
    Entry(
        "attention",
        ATTENTION,
        """for (int h = 0; h < 4; h++) for (int i = 0; i < 128; i++) {
    float S[128], m = -INFINITY, t = 0;
    for (int j = 0; j < 128; j++) {
      float s = 0;
      for (int d = 0; d < 32; d++) s += Q[h][i][d] * K[h][j][d];
      S[j] = 0.1767766953f * s; if (S[j] > m) m = S[j];
    }
    for (int j = 0; j < 128; j++) { S[j] = expf(S[j] - m); t += S[j]; }
    for (int d = 0; d < 32; d++) Y[h][i][d] = 0;
    for (int j = 0; j < 128; j++) for (int d = 0; d < 32; d++) Y[h][i][d] += S[j] / t * V[h][j][d];
  }""",
        "F.scaled_dot_product_attention(Q[None], K[None], V[None])[0]",
    ),
    Entry(
        "Tucker product",
        TUCKER,
        """static float T[8][8][32], S[8][32][32];
  for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) for (int c = 0; c < 32; c++) {
    float s = 0; for (int l = 0; l < 8; l++) s += G[i][j][l] * C[c][l];
    T[i][j][c] = s;
  }
  for (int i = 0; i < 8; i++) for (int b = 0; b < 32; b++) for (int c = 0; c < 32; c++) {
    float s = 0; for (int j = 0; j < 8; j++) s += T[i][j][c] * B[b][j];
    S[i][b][c] = s;
  }
  for (int a = 0; a < 32; a++) for (int b = 0; b < 32; b++) for (int c = 0; c < 32; c++) {
    float s = 0; for (int i = 0; i < 8; i++) s += S[i][b][c] * A[a][i];
    Y[a][b][c] = s;
  }""",
        'torch.einsum("ibc,ai->abc", torch.einsum("ijc,bj->ibc", torch.einsum("ijl,cl->ijc", G, C), B), A)',
    ),
    Entry(
        "chain of three matrices",
        CHAIN,
        """static float T[16][128];
  for (int l = 0; l < 16; l++) for (int j = 0; j < 128; j++) T[l][j] = 0;
  for (int l = 0; l < 16; l++) for (int m = 0; m < 128; m++) for (int j = 0; j < 128; j++) T[l][j] += B[l][m] * C[m][j];
  for (int i = 0; i < 128; i++) for (int j = 0; j < 128; j++) {
    float s = 0;
    for (int l = 0; l < 16; l++) s += A[i][l] * T[l][j];
    Y[i][j] = s;
  }""",
        "torch.linalg.multi_dot([A, B, C])",
    ),
    Entry(
        "covariance",
        """kernel k(X: float[512,64]) -> (C: float[64,64]) {
  M<64>[i] = X[n,i] / 512;
  C[i,j] = (X[n,i] - M[i]) * (X[n,j] - M[j]) / 511;
}""",
        """float M[64];
  for (int i = 0; i < 64; i++) M[i] = 0;
  for (int n = 0; n < 512; n++) for (int i = 0; i < 64; i++) M[i] += X[n][i] / 512;
  for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j++) C[i][j] = 0;
  for (int n = 0; n < 512; n++) for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j++)
    C[i][j] += (X[n][i] - M[i]) * (X[n][j] - M[j]) / 511;""",
        "torch.cov(X.T)",
    ),
)
"""What is computed forward, and how C and torch do."""
