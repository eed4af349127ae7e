"""14 gradients of kernels, from the kernel's operands and the cotangent of its result: dX of X, … and dY."""

from __future__ import annotations

from benchmarks.hand import forward
from benchmarks.hand.entry import Entry

_OF = {e.name: e for e in forward.FORWARD}


def _gradient(name: str, grad: tuple[str, ...], loops: str) -> Entry:
    of = _OF[name]
    return Entry(f"{name}, gradient", of.kernel, loops, of.torch, grad, of.below)


GRADIENTS = (
    _gradient(
        "pairwise distances",
        ("X", "Z"),
        """for (int i = 0; i < 256; i++) for (int c = 0; c < 48; c++) dX[i][c] = 0;
  for (int j = 0; j < 192; j++) for (int c = 0; c < 48; c++) dZ[j][c] = 0;
  for (int i = 0; i < 256; i++) for (int j = 0; j < 192; j++) {
    float s = 0;
    for (int c = 0; c < 48; c++) { float d = X[i][c] - Z[j][c]; s += d * d; }
    s = dD[i][j] / sqrtf(s);
    for (int c = 0; c < 48; c++) { float d = s * (X[i][c] - Z[j][c]); dX[i][c] += d; dZ[j][c] -= d; }
  }""",
    ),
    _gradient(
        "softmax",
        ("X",),
        """for (int i = 0; i < 512; i++) {
    float m = X[i][0], s = 0, p = 0;
    for (int j = 1; j < 512; j++) if (X[i][j] > m) m = X[i][j];
    for (int j = 0; j < 512; j++) { dX[i][j] = expf(X[i][j] - m); s += dX[i][j]; }
    for (int j = 0; j < 512; j++) p += dX[i][j] * dY[i][j];
    for (int j = 0; j < 512; j++) dX[i][j] = dX[i][j] / s * (dY[i][j] - p / s);
  }""",
    ),
    _gradient(
        "layer norm",
        ("X", "G", "B"),
        """for (int j = 0; j < 512; j++) dG[j] = dB[j] = 0;
  for (int i = 0; i < 512; i++) {
    float m = 0, v = 0, a = 0, b = 0;
    for (int j = 0; j < 512; j++) m += X[i][j];
    m /= 512;
    for (int j = 0; j < 512; j++) v += (X[i][j] - m) * (X[i][j] - m);
    v = 1 / sqrtf(v / 512 + 0.00001f);
    for (int j = 0; j < 512; j++) {
      float n = (X[i][j] - m) * v, g = dY[i][j] * G[j];
      dG[j] += dY[i][j] * n; dB[j] += dY[i][j]; a += g; b += g * n;
    }
    for (int j = 0; j < 512; j++) dX[i][j] = v * (dY[i][j] * G[j] - (a + (X[i][j] - m) * v * b) / 512);
  }""",
    ),
    _gradient(
        "RMS norm",
        ("X", "G"),
        """for (int j = 0; j < 512; j++) dG[j] = 0;
  for (int i = 0; i < 512; i++) {
    float v = 0, b = 0;
    for (int j = 0; j < 512; j++) v += X[i][j] * X[i][j];
    v = 1 / sqrtf(v / 512 + 0.00001f);
    for (int j = 0; j < 512; j++) { dG[j] += dY[i][j] * X[i][j] * v; b += dY[i][j] * G[j] * X[i][j]; }
    for (int j = 0; j < 512; j++) dX[i][j] = v * (dY[i][j] * G[j] - X[i][j] * v * v * b / 512);
  }""",
    ),
    _gradient(
        "log-sum-exp",
        ("X",),
        """for (int i = 0; i < 512; i++) {
    float m = X[i][0], s = 0;
    for (int j = 1; j < 512; j++) if (X[i][j] > m) m = X[i][j];
    for (int j = 0; j < 512; j++) { dX[i][j] = expf(X[i][j] - m); s += dX[i][j]; }
    for (int j = 0; j < 512; j++) dX[i][j] *= dL[i] / s;
  }""",
    ),
    _gradient(
        "cosine similarity",
        ("X", "Z"),
        """for (int i = 0; i < 1024; i++) {
    float p = 0, a = 0, b = 0;
    for (int j = 0; j < 128; j++) { p += X[i][j] * Z[i][j]; a += X[i][j] * X[i][j]; b += Z[i][j] * Z[i][j]; }
    float n = dC[i] / sqrtf(a * b);
    for (int j = 0; j < 128; j++) {
      dX[i][j] = n * (Z[i][j] - p / a * X[i][j]);
      dZ[i][j] = n * (X[i][j] - p / b * Z[i][j]);
    }
  }""",
    ),
    _gradient(
        "bias, GELU, gate",
        ("X", "B", "G"),
        """for (int j = 0; j < 1024; j++) dB[j] = 0;
  for (int i = 0; i < 256; i++) for (int j = 0; j < 1024; j++) {
    float t = X[i][j] + B[j], h = tanhf(0.7978845608f * (t + 0.044715f * t * t * t));
    float d = 0.5f * (1 + h) + 0.5f * t * (1 - h * h) * 0.7978845608f * (1 + 3 * 0.044715f * t * t);
    dG[i][j] = 0.5f * t * (1 + h) * dY[i][j];
    dX[i][j] = dY[i][j] * G[i][j] * d;
    dB[j] += dX[i][j];
  }""",
    ),
    _gradient(
        "convolution",
        ("X", "W"),
        """for (int c = 0; c < 16; c++) for (int y = 0; y < 34; y++) for (int x = 0; x < 34; x++) dX[c][y][x] = 0;
  for (int f = 0; f < 32; f++) for (int c = 0; c < 16; c++) for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++) {
    float t = 0, w = W[f][c][r][s];
    for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) {
      t += dY[f][y][x] * X[c][y + r][x + s]; dX[c][y + r][x + s] += dY[f][y][x] * w;
    }
    dW[f][c][r][s] = t;
  }""",
    ),
    _gradient(
        "grouped convolution",
        ("X", "W"),
        """for (int g = 0; g < 8; g++) {
    for (int c = 0; c < 4; c++) for (int y = 0; y < 34; y++) for (int x = 0; x < 34; x++) dX[g][c][y][x] = 0;
    for (int f = 0; f < 4; f++) for (int c = 0; c < 4; c++) for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++) {
      float t = 0, w = W[g][f][c][r][s];
      for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) {
        t += dY[g][f][y][x] * X[g][c][y + r][x + s]; dX[g][c][y + r][x + s] += dY[g][f][y][x] * w;
      }
      dW[g][f][c][r][s] = t;
    }
  }""",
    ),
    _gradient(
        "depthwise convolution",
        ("X", "W"),
        """for (int c = 0; c < 64; c++) {
    for (int y = 0; y < 34; y++) for (int x = 0; x < 34; x++) dX[c][y][x] = 0;
    for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++) {
      float t = 0, w = W[c][r][s];
      for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) {
        t += dY[c][y][x] * X[c][y + r][x + s]; dX[c][y + r][x + s] += dY[c][y][x] * w;
      }
      dW[c][r][s] = t;
    }
  }""",
    ),
    _gradient(
        "batched 4x4 products",
        ("A", "B"),
        """for (int b = 0; b < 4096; b++) for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) {
    float s = 0, t = 0;
    for (int l = 0; l < 4; l++) { s += dC[b][i][l] * B[b][j][l]; t += A[b][l][i] * dC[b][l][j]; }
    dA[b][i][j] = s; dB[b][i][j] = t;
  }""",
    ),
    _gradient(
        "im2col by // and %",
        ("X",),
        """for (int c = 0; c < 16; c++) for (int y = 0; y < 34; y++) for (int x = 0; x < 34; x++) dX[c][y][x] = 0;
  for (int y = 0; y < 32; y++) for (int x = 0; x < 32; x++) for (int c = 0; c < 16; c++)
    for (int r = 0; r < 3; r++) for (int s = 0; s < 3; s++)
      dX[c][y + r][x + s] += dA[y * 32 + x][c * 9 + r * 3 + s];""",
    ),
    _gradient(
        "Tucker product",
        ("G", "A"),
        """static float T[8][8][32], S[8][32][32], U[8][8][32];
  for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) for (int c = 0; c < 32; c++) {
    float s = 0; for (int l = 0; l < 8; l++) s += G[i][j][l] * C[c][l];
    T[i][j][c] = s;
  }
  for (int i = 0; i < 8; i++) for (int b = 0; b < 32; b++) for (int c = 0; c < 32; c++) {
    float s = 0; for (int j = 0; j < 8; j++) s += T[i][j][c] * B[b][j];
    S[i][b][c] = s;
  }
  for (int a = 0; a < 32; a++) for (int i = 0; i < 8; i++) {
    float s = 0; for (int b = 0; b < 32; b++) for (int c = 0; c < 32; c++) s += dY[a][b][c] * S[i][b][c];
    dA[a][i] = s;
  }
  for (int i = 0; i < 8; i++) for (int b = 0; b < 32; b++) for (int c = 0; c < 32; c++) {
    float s = 0; for (int a = 0; a < 32; a++) s += dY[a][b][c] * A[a][i];
    S[i][b][c] = s;
  }
  for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) for (int c = 0; c < 32; c++) {
    float s = 0; for (int b = 0; b < 32; b++) s += S[i][b][c] * B[b][j];
    U[i][j][c] = s;
  }
  for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) for (int l = 0; l < 8; l++) {
    float s = 0; for (int c = 0; c < 32; c++) s += U[i][j][c] * C[c][l];
    dG[i][j][l] = s;
  }""",
    ),
    _gradient(
        "attention",
        ("Q", "K", "V"),
        """for (int h = 0; h < 4; h++) {
    for (int i = 0; i < 128; i++) for (int d = 0; d < 32; d++) dQ[h][i][d] = dK[h][i][d] = dV[h][i][d] = 0;
    for (int i = 0; i < 128; i++) {
      float S[128], P[128], m = -INFINITY, t = 0, q = 0;
      for (int j = 0; j < 128; j++) {
        float s = 0;
        for (int d = 0; d < 32; d++) s += Q[h][i][d] * K[h][j][d];
        S[j] = 0.1767766953f * s; if (S[j] > m) m = S[j];
      }
      for (int j = 0; j < 128; j++) { S[j] = expf(S[j] - m); t += S[j]; }
      for (int j = 0; j < 128; j++) {
        float s = 0;
        S[j] /= t;
        for (int d = 0; d < 32; d++) { s += dY[h][i][d] * V[h][j][d]; dV[h][j][d] += S[j] * dY[h][i][d]; }
        P[j] = s; q += S[j] * s;
      }
      for (int j = 0; j < 128; j++) {
        float s = 0.1767766953f * S[j] * (P[j] - q);
        for (int d = 0; d < 32; d++) { dQ[h][i][d] += s * K[h][j][d]; dK[h][j][d] += s * Q[h][i][d]; }
      }
    }
  }""",
    ),
)
"""What is differentiated; C starts from the same operands, and torch differentiates what it computes from them."""
